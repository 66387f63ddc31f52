# frozen_string_literal: true

# Jobs for tests between languages, in Ruby. Each does what its first argument says, so that one class serves every test;
# the classes differ only in their options. `interop_tests/support/python_jobs.py` is the same in Python.
#
# Loaded by a real Sidekiq process (`sidekiq -r ruby_fixtures/jobs.rb`), by `record.rb`, and by Ruby code that tests run.

require "json"
require "sidekiq"

# From 6.3 on a job class includes `Sidekiq::Job`; before, that name was the data API's for an entry of a queue.
FIXTURE_JOB = (Gem::Version.new(Sidekiq::VERSION) < Gem::Version.new("6.3")) ? Sidekiq::Worker : Sidekiq::Job

# redis-rb 4.8 warns at each SADD of Sidekiq 6.4.1; the logs are for what matters.
if defined?(Redis) && Redis.respond_to?(:silence_deprecations=)
  Redis.silence_deprecations = true
  Redis.sadd_returns_boolean = false
end

# Tests ask for a quick poller. The interval is a setting; the wait of up to five seconds before the first poll is none.
if (poll_seconds = ENV["FIXTURE_POLL_SECONDS"])
  Sidekiq.configure_server do |config|
    settings = config.respond_to?(:[]=) ? config : Sidekiq.options
    settings[:poll_interval_average] = poll_seconds.to_f
    Sidekiq::Scheduled::Poller.prepend(Module.new { private def initial_wait; end })
  end
end

# The same for the heartbeat, which brings signals and, in 6.0, all that is ever counted.
if (beat_seconds = ENV["FIXTURE_BEAT_SECONDS"])
  Sidekiq.configure_server do
    Sidekiq::Launcher.prepend(Module.new { define_method(:sleep) { |_usual| super(beat_seconds.to_f) } })
  end
end

class FixtureError < StandardError; end

module Fixtures
  class NestedError < StandardError; end
end

# An error that cannot even say what it is.
class SpeechlessError < StandardError
  def message
    raise "no words"
  end
end

module FixtureLedger
  private

  # Who ran what: one JSON object a run, at the list's end.
  def do_ledger(key, entry)
    line = JSON.generate("entry" => entry, "jid" => jid, "by" => "ruby", "pid" => ::Process.pid)
    Sidekiq.redis { |conn| conn.rpush(key, line) }
  end
end

# The deeds a job can be asked for: `perform("<deed>", ...)`.
module FixtureDeeds
  include FixtureLedger

  def perform(deed, *rest)
    send("do_#{deed}", *rest)
  end

  private

  def do_ok(*)
    "ok"
  end

  # A backtrace in the arguments makes recorded failures the same on every machine.
  def do_raise(message = "boom", error_class = "FixtureError", backtrace = nil, *)
    error = Object.const_get(error_class).new(message)
    error.set_backtrace(backtrace) if backtrace
    raise error
  end

  # Bytes that are not UTF-8 cannot stand in a payload, so they are asked for by deed.
  def do_raise_invalid_utf8
    raise FixtureError, "broken \xE9 text".dup.force_encoding("ASCII-8BIT")
  end

  # The first *times* runs fail; later ones write to the ledger.
  def do_raise_until(counter_key, times, ledger_key, entry)
    run = Sidekiq.redis { |conn| conn.incr(counter_key) }
    raise FixtureError, "run #{run} of #{times} that fail" if run <= times

    do_ledger(ledger_key, entry)
  end

  def do_sleep(seconds)
    sleep(seconds)
  end

  # Blocks until a key exists: a test decides when the job may end.
  def do_wait_for(key)
    sleep(0.01) until Sidekiq.redis { |conn| conn.get(key) }
  end

  def do_write(key, value)
    Sidekiq.redis { |conn| conn.set(key, value) }
  end

  def do_ledger_and_sleep(key, entry, seconds)
    do_ledger(key, entry)
    sleep(seconds)
  end

  def do_sleep_and_ledger(key, entry, seconds)
    sleep(seconds)
    do_ledger(key, entry)
  end

  def do_ledger_and_wait_for(key, entry, gate_key)
    do_ledger(key, entry)
    do_wait_for(gate_key)
  end

  # The arguments as they arrived, written again as JSON.
  def do_echo(key, *arguments)
    Sidekiq.redis { |conn| conn.rpush(key, JSON.generate(arguments)) }
  end

  # The process is gone without a word, as after a crash.
  def do_exit(code = 1)
    exit!(code)
  end

  def do_enqueue(class_name, arguments, queue = "default")
    Sidekiq::Client.push("class" => class_name, "args" => arguments, "queue" => queue)
  end
end

class FixtureJob
  include FIXTURE_JOB
  include FixtureDeeds
end

class RetryFalseJob < FixtureJob
  sidekiq_options retry: false
end

class RetryZeroJob < FixtureJob
  sidekiq_options retry: 0
end

class RetryThreeJob < FixtureJob
  sidekiq_options retry: 3
end

class BacktraceJob < FixtureJob
  sidekiq_options backtrace: true
end

class BacktraceTwoLinesJob < FixtureJob
  sidekiq_options backtrace: 2
end

# Retries after 100, 200, 300, ... seconds.
class RetryInJob < FixtureJob
  sidekiq_retry_in { |count, _error| (count + 1) * 100 }
end

# Retries at once, as far as Sidekiq allows: a second, and what its jitter adds.
class RetrySoonJob < FixtureJob
  sidekiq_options retry: 2
  sidekiq_retry_in { |_count, _error| 1 }
end

# Says in the list `fixture:exhausted` that its retries are over.
class ExhaustedJob < FixtureJob
  sidekiq_options retry: 0
  sidekiq_retries_exhausted do |job, error|
    line = JSON.generate("jid" => job["jid"], "error" => error.message, "by" => "ruby")
    Sidekiq.redis { |conn| conn.rpush("fixture:exhausted", line) }
  end
end

class TaggedJob < FixtureJob
  sidekiq_options tags: %w[alpha beta]
end

class NeverDeadJob < FixtureJob
  sidekiq_options retry: 0, dead: false
end

class CriticalJob < FixtureJob
  sidekiq_options queue: "critical"
end

class RetryQueueJob < FixtureJob
  sidekiq_options retry_queue: "slow"
end

# Every option at once, in an order of its own.
class ManyOptionsJob < FixtureJob
  sidekiq_options queue: "critical", backtrace: 5, retry: 7, tags: ["x"], dead: false, retry_queue: "slow"
end

module Billing
  class InvoiceJob < FixtureJob
  end
end

# Goes through numbers with cursors of a *kind*, and writes each number and each callback to the ledger. At the number in
# `fixture:leave_at` it waits for the process to stop, so that it leaves off behind it; at that in `fixture:hang_at` it
# waits for the gate, and at that in `fixture:fail_at` it fails.
if Sidekiq.const_defined?(:IterableJob)
  class WalkJob
    include Sidekiq::IterableJob
    include FixtureLedger

    def build_enumerator(kind, count, key, gate_key, cursor:)
      @kind, @key, @gate_key = kind, key, gate_key
      return array_enumerator((0...count).to_a, cursor: cursor) if kind == "index"

      first = cursor ? number_at(cursor) : 0
      Enumerator.new { |items| (first...count).each { |number| items.yield(number, cursor_at(number)) } }
    end

    def each_iteration(number, *)
      note(number)
      raise FixtureError, "at #{number}" if number == number_in("fixture:fail_at")

      sleep(0.01) until interrupted? || number != number_in("fixture:leave_at")
      sleep(0.01) until Sidekiq.redis { |conn| conn.get(@gate_key) } || number != number_in("fixture:hang_at")
    end

    def on_start
      note("start")
    end

    def on_resume
      note("resume")
    end

    def on_stop
      note("stop")
    end

    def on_cancel
      note("cancel")
    end

    def on_complete
      note("complete")
    end

    private

    def note(what)
      do_ledger(@key, [@kind, what])
    end

    def number_in(key)
      Sidekiq.redis { |conn| conn.get(key) }&.to_i
    end

    def cursor_at(number)
      case @kind
      when "text" then "n\u00b0#{number}"
      when "pair" then [number, "of", {"page" => number / 2.0}]
      end
    end

    def number_at(cursor)
      cursor.is_a?(Array) ? cursor.first : cursor.delete_prefix("n\u00b0").to_i
    end
  end
end

# Jobs that Python runs: Ruby knows their names and options, and only enqueues them.
class PythonJob
  include FIXTURE_JOB
  sidekiq_options queue: "python"

  def perform(*)
    raise NotImplementedError, "PythonJob is performed by Python; no Ruby process should fetch from its queue"
  end
end

class PythonRetryTwoJob < PythonJob
  sidekiq_options retry: 2
end

module Billing
  class PythonInvoiceJob < PythonJob
  end
end
