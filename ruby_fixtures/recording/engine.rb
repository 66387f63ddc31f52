# frozen_string_literal: true

require "sidekiq/api"
require "sidekiq/launcher"
require "sidekiq/processor"
require "sidekiq/scheduled"
require_relative "frozen_world"

# Sidekiq's own parts, driven by hand: one fetch, one run, one poll, so that a recording is in command of each step.
#
# What is the same in every release stands here; `engine_until_six.rb` and `engine_since_seven.rb` know what Sidekiq calls
# its inner parts and how they are configured. Another release needs its own lines there, and nowhere else.
module Engine
  VERSION = Gem::Version.new(Sidekiq::VERSION)

  # The run of one job: what the queue gave, and what the job raised (nil when nothing).
  Run = Struct.new(:before, :queue, :error, keyword_init: true) do
    # The run as a recording's input.
    def to_h
      {"step" => "run", "queue" => queue, "before" => before, "now" => FrozenWorld.now,
       "random" => FrozenWorld::JITTER, "error" => Engine.describe(error)}
    end
  end

  class << self
    # Whether this release is *version* or later.
    def since?(version)
      VERSION >= Gem::Version.new(version)
    end

    # Fetch the next job of *queue* by BRPOP and run it, retries and all. Of several errors the job's own comes last, behind those
    # of its blocks.
    def run_next(queue)
      before = nil
      @errors = []
      process_next(queue) { |work| before = work.job.dup }
      Run.new(before: before, queue: queue, error: @errors.last)
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

    # A time as this release writes it into payloads.
    def stamp(seconds)
      since?("8") ? (seconds * 1000).floor : seconds
    end

    # How the key of a process's running jobs ends.
    def work_suffix
      since?("6.4.2") ? "work" : "workers"
    end

    # Forget the runs that were counted so far.
    def reset_counters
      Sidekiq::Processor::PROCESSED.reset
      Sidekiq::Processor::FAILURE.reset
    end

    # Run *launcher*'s processors within the block, then let them finish.
    def working(launcher)
      managers(launcher).each(&:start)
      yield
    ensure
      managers(launcher).each(&:quiet)
      managers(launcher).flat_map { |manager| manager.workers.to_a }.each { |processor| processor.terminate(true) }
    end

    # Errors and deaths go into the recording and into no log. Ruby 3.1 quotes the failing line of source in the messages of
    # NameError; that line is not a fact about payloads, and it is switched off.
    def listen
      silence_error_highlight if defined?(ErrorHighlight)
      Sidekiq.logger.level = Logger::FATAL
      settings.error_handlers.clear
      settings.error_handlers << on_error
      settings.death_handlers << on_death
    end

    def describe(error)
      return nil unless error

      {"class" => error.class.name, "message" => speech(error), "backtrace" => stated_backtrace(error)}
    end

    private

    def silence_error_highlight
      ErrorHighlight.formatter = Class.new do
        def self.message_for(_spot)
          ""
        end
      end
    end

    # Three parameters: 7.x warns of handlers with fewer, 6.x gives two.
    def on_error
      proc { |error, _context, _config| (@errors ||= []) << error }
    end

    def on_death
      lambda do |job, error|
        line = JSON.generate("jid" => job["jid"], "error_class" => error.class.name, "message" => error.message)
        Sidekiq.redis { |conn| conn.rpush("fixture:deaths", line) }
      end
    end

    def process(processor, work)
      processor.send(:process, work)
    rescue Exception => raised # rubocop:disable Lint/RescueException -- a processor thread dies of every failure
      @errors << raised if @errors.empty?
    end

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
  end
end

require_relative(Engine.since?("7") ? "engine_since_seven" : "engine_until_six")
