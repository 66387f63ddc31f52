# frozen_string_literal: true

# Runs failed jobs through the `Sidekiq::JobRetry` that is installed, with the clock and the draw of jitter held still.
#
# stdin: a JSON array of cases; stdout: a JSON array of what each left in Redis and which deaths were announced. Payloads
# go both ways in base64, as they may be any bytes.
#
#   {raw, queue, error_class, message | raises, backtrace, now, draw, declared, options, retry_in, exhausted, max_retries}
#   {retry: [[member, score]], dead: [[member, score]], deaths: [payload], reported: [text], error: class or null}

require "base64"
require "json"
require "sidekiq"
require "sidekiq/api"
require "sidekiq/job_retry"

Sidekiq.logger.level = Logger::FATAL

$now = 0.0
$draw = 0.0

class << Time
  def now(*)
    at($now)
  end
end

class Sidekiq::JobRetry
  def rand(range)
    ($draw * range).floor
  end
end

class FailingError < StandardError
  class << self
    attr_accessor :shown_name
    alias_method :name, :shown_name
  end

  def initialize(message, raises)
    super(message)
    @raises = raises
  end

  def message
    raise "no message" if @raises
    super
  end
end

def block_that_answers(answer)
  return nil if answer.nil?
  proc do |*|
    raise "the block failed" if answer == "raises"
    answer
  end
end

def worker_class(kase)
  Class.new do
    include Sidekiq::Worker
    sidekiq_options(kase["options"])
    self.sidekiq_retry_in_block = block_that_answers(kase["retry_in"])
    self.sidekiq_retries_exhausted_block = proc { |msg, _| msg["seen"] = kase["exhausted"] } if kase["exhausted"]

    def self.name
      "FailingJob"
    end
  end
end

def fail_in(retrier, worker, raw, queue, error)
  retrier.global(raw, queue) do
    next raise(error) unless worker
    retrier.local(worker, raw, queue) { raise error }
  end
end

def run(kase)
  Sidekiq.redis { |conn| conn.del("retry", "dead") }
  $now, $draw = kase["now"], kase["draw"]
  deaths, reported = [], []
  Sidekiq.death_handlers.replace([proc { |job, _| deaths << Marshal.load(Marshal.dump(job)) }])
  Sidekiq.error_handlers.replace([proc { |error, context| reported << "#{context[:context]}: #{error.message}" }])
  FailingError.shown_name = kase["error_class"]
  error = FailingError.new(Base64.decode64(kase["message"]).force_encoding("UTF-8"), kase["raises"])
  error.set_backtrace(kase["backtrace"])
  options = kase["max_retries"] ? {max_retries: kase["max_retries"]} : {}
  worker = worker_class(kase).new if kase["declared"]
  escaped = begin
    fail_in(Sidekiq::JobRetry.new(options), worker, Base64.decode64(kase["raw"]).force_encoding("UTF-8"), kase["queue"], error)
  rescue Sidekiq::JobRetry::Handled
    nil
  rescue Exception => unexpected
    unexpected.class.to_s
  end
  result = Sidekiq.redis { |conn|
    %w[retry dead].to_h { |name|
      [name, conn.zrange(name, 0, -1, with_scores: true).map { |member, score| [Base64.strict_encode64(member), score] }]
    }
  }
  result.merge("deaths" => deaths, "reported" => reported, "escaped" => escaped)
end

puts JSON.generate(JSON.parse($stdin.read).map { |kase| run(kase) })
