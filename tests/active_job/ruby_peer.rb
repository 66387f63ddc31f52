# Answers questions about Active Job: one JSON object a line in, one out.
#
#   {"ask": "serialize", "code": "3.days"}                    -> {"json": "[…]"}    the text of its arguments
#   {"ask": "equal", "code": "3.days", "json": "[…]"}         -> {"equal": true, "seen": "…"}
#   {"ask": "execute", "json": "{job object}", "jid": "…"}    -> {"calls": ["…"]}   what perform was given
#   {"ask": "retry", "json": "{job object}", "jid": "…"}      -> {"pushed": [payload, …]}  what a failing job enqueued
#   {"ask": "push", "code": "EchoJob.perform_later(1)"}       -> {"pushed": [payload, …]}
require "json"
require "logger"
require "sidekiq"
require "active_support"
require "active_support/all"
require "active_job"
require "globalid"

Time.zone = "Europe/Berlin"
GlobalID.app = "shop"
ActiveJob::Base.logger = Logger.new(nil)
ActiveJob::Base.queue_adapter = :sidekiq
ActiveJob.use_big_decimal_serializer = true if ActiveJob.respond_to?(:use_big_decimal_serializer=)

# A record as Active Record makes them.
Invoice = Struct.new(:id) do
  include GlobalID::Identification
  def self.find(id) = new(id)
end

# A value with a serializer of the app's own.
Money = Struct.new(:cents, :currency)

class MoneySerializer < ActiveJob::Serializers::ObjectSerializer
  def serialize(money) = super("amount" => money.cents, "currency" => money.currency)
  def deserialize(hash) = Money.new(hash["amount"], hash["currency"])
  def klass = Money
end
ActiveJob::Serializers.add_serializers MoneySerializer

$calls = []

class EchoJob < ActiveJob::Base
  def perform(*args) = $calls << args.inspect
end

class KeywordJob < ActiveJob::Base
  def perform(id, format:, **rest) = $calls << [id, format, rest].inspect
end

class FlakyError < StandardError; end

class FlakyJob < ActiveJob::Base
  retry_on FlakyError, wait: 3, attempts: 5
  def perform(*) = raise(FlakyError, "no luck")
end

def with_pushes
  pushed = []
  client = Sidekiq::Client
  client.define_method(:raw_push) { |payloads| pushed.concat(payloads.map { |payload| Sidekiq.dump_json(payload) }) }
  yield
  { pushed: pushed }
end

def keywords(*args) = args
Object.send(:ruby2_keywords, :keywords)

def answer(question)
  arguments = ActiveJob::Arguments
  case question["ask"]
  when "serialize"
    { json: JSON.generate(arguments.serialize([eval(question["code"])])) }
  when "equal"
    seen = arguments.deserialize(JSON.parse(question["json"]))
    wanted = [eval(question["code"])]
    { equal: seen == wanted && seen.map(&:class) == wanted.map(&:class), seen: seen.inspect }
  when "execute"
    $calls.clear
    ActiveJob::Base.execute(JSON.parse(question["json"]).merge("provider_job_id" => question["jid"]))
    { calls: $calls }
  when "retry"
    with_pushes do
      ActiveJob::Base.execute(JSON.parse(question["json"]).merge("provider_job_id" => question["jid"]))
    end
  when "push"
    with_pushes { eval(question["code"]) }
  end
end

$stdout.sync = true
puts JSON.generate(ready: ActiveJob.version.to_s)
$stdin.each_line do |line|
  puts JSON.generate(answer(JSON.parse(line)))
rescue StandardError, ScriptError => error
  puts JSON.generate(error: "#{error.class}: #{error.message}")
end
