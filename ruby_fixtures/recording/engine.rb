# frozen_string_literal: true

require "sidekiq/api"
require "sidekiq/launcher"
require "sidekiq/processor"
require "sidekiq/scheduled"
require_relative "frozen_world"

# Sidekiq's own parts, driven by hand: one fetch, one run, one poll, so that a recording is in command of each step.
#
# This is the only file that knows what Sidekiq calls its inner parts; another release needs its own lines here.
module Engine
  # The run of one job: what the queue gave, and what the job raised (nil when nothing).
  Run = Struct.new(:before, :queue, :error, keyword_init: true) do
    # The run as a recording's input.
    def to_h
      {"step" => "run", "queue" => queue, "before" => before, "now" => FrozenWorld.now,
       "random" => FrozenWorld::JITTER, "error" => Engine.describe(error)}
    end
  end

  class << self
    # Fetch the next job of *queue* by BRPOP and run it, retries and all.
    def run_next(queue)
      fetch = Sidekiq::BasicFetch.new(queues: [queue], strict: true)
      work = fetch.retrieve_work or raise "queue #{queue} is empty"
      before = work.job.dup
      @errors = []
      begin
        Sidekiq::Processor.new(nil, options.merge(fetch: fetch)).send(:process, work)
      rescue Exception => raised # rubocop:disable Lint/RescueException -- a processor thread dies of every failure
        @errors << raised if @errors.empty?
      end
      Run.new(before: before, queue: queue, error: @errors.first)
    end

    # One round of the poller: everything that is due by now.
    def promote
      Sidekiq::Scheduled::Enq.new.enqueue_jobs
    end

    # A manager with *threads* threads on *queue*; stops by force when the block is over.
    def hard_stop(queue, threads:)
      manager = Sidekiq::Manager.new(options.merge(concurrency: threads, fetch: fetch_from(queue), queues: [queue]))
      manager.start
      yield
      manager.stop(Process.clock_gettime(Process::CLOCK_MONOTONIC))
    end

    # A launcher that never started its threads; `beat` and `clear` are asked for one by one. What it measures is held still.
    def launcher(queues, concurrency:, rss_kb:, rtt_us:)
      settings = options.merge(queues: queues, concurrency: concurrency, fetch: fetch_from(*queues))
      Sidekiq::Launcher.new(settings).tap do |launcher|
        launcher.define_singleton_method(:memory_usage) { |_pid| rss_kb }
        launcher.define_singleton_method(:check_rtt) { rtt_us }
      end
    end

    # Forget the runs that were counted so far.
    def reset_counters
      Sidekiq::Processor::PROCESSED.reset
      Sidekiq::Processor::FAILURE.reset
    end

    # One heartbeat of *launcher*.
    def beat(launcher)
      launcher.send(:❤)
    end

    # What a launcher's threads would do when they leave.
    def clear(launcher)
      launcher.send(:clear_heartbeat)
    end

    def identity(launcher)
      launcher.identity
    end

    # Run *launcher*'s processors within the block, then let them finish.
    def working(launcher)
      launcher.manager.start
      yield
    ensure
      launcher.manager.quiet
      launcher.manager.workers.dup.each { |processor| processor.terminate(true) }
    end

    # Errors and deaths go into the recording and into no log. Ruby 3.1 quotes the failing line of source in the messages of
    # NameError; that line is not a fact about payloads, and it is switched off.
    def listen
      ErrorHighlight.formatter = Class.new { def self.message_for(_spot) = "" } if defined?(ErrorHighlight)
      Sidekiq.logger.level = Logger::FATAL
      Sidekiq.error_handlers.clear
      Sidekiq.error_handlers << ->(error, _context) { (@errors ||= []) << error }
      Sidekiq.death_handlers << lambda do |job, error|
        line = JSON.generate("jid" => job["jid"], "error_class" => error.class.name, "message" => error.message)
        Sidekiq.redis { |conn| conn.rpush("fixture:deaths", line) }
      end
    end

    def describe(error)
      return nil unless error

      {"class" => error.class.name, "message" => speech(error), "backtrace" => stated_backtrace(error)}
    end

    private

    # The lines that a job's arguments asked for; real ones differ from machine to machine.
    def stated_backtrace(error)
      lines = error.backtrace.to_a.grep(%r{\Aapp/})
      lines unless lines.empty?
    end

    def speech(error)
      error.message
    rescue StandardError
      nil
    end

    def options
      Sidekiq.options.merge(labels: [], tag: "fixtures", timeout: 0)
    end

    def fetch_from(*queues)
      Sidekiq::BasicFetch.new(queues: queues, strict: true)
    end
  end
end
