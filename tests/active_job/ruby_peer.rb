# Answers questions about Active Job: one JSON object a line in, one out.
#
#   {"ask": "serialize", "code": "3.days"}                    -> {"json": "[…]"}    the text of its arguments
#   {"ask": "equal", "code": "3.days", "json": "[…]"}         -> {"equal": true, "seen": "…"}
#   {"ask": "execute", "json": "{job object}", "jid": "…"}    -> {"calls": ["…"]}   what perform was given
#   {"ask": "retry", "json": "{job object}", "jid": "…"}      -> {"pushed": [push, …]}   what a failing job enqueued
#   {"ask": "push", "code": "EchoJob.perform_later(1)"}       -> {"pushed": [push, …]}
#
# A push is {"payload": "text", "at": seconds or null}.
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

class OptionsJob < ActiveJob::Base
  include Sidekiq::Worker::Options
  queue_as :reports
  sidekiq_options retry: 3, backtrace: true, tags: ["x"]
  def perform(*) = nil
end

# What Action Mailer calls is the same without its gem. Source: Rails 6.1 to 8.1, message_delivery.rb, parameterized.rb.
module ActionMailer
  class MailDeliveryJob < ActiveJob::Base
    def perform(mailer, action, delivery_method, args:, kwargs: nil, params: nil)
      $calls << [mailer, action, delivery_method, args, kwargs, params].inspect
    end
  end
end

# Stands where Sidekiq's Redis connection would.
class Recorder
  attr_reader :pushed

  def initialize = @pushed = []
  def sadd(*) = nil
  def lpush(_queue, texts) = texts.each { |text| @pushed << { payload: text, at: nil } }
  def zadd(_set, pairs) = pairs.flatten.each_slice(2) { |at, text| @pushed << { payload: text, at: at.to_f } }
end

def with_pushes
  recorder = Recorder.new
  Sidekiq::Client.define_method(:raw_push) { |payloads| atomic_push(recorder, payloads) }
  yield
  { pushed: recorder.pushed }
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
