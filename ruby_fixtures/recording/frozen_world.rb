# frozen_string_literal: true

require "digest"
require "securerandom"

# Everything that would differ between two recordings, held still: the clock stands until it is moved on, random ids are
# numbered digests, and the jitter of retries is a number that the recording names.
module FrozenWorld
  START = 1_700_000_000.123456
  JITTER = 7
  SPREAD = 0.25

  class << self
    attr_reader :now, :tick

    # Back to the beginning; each situation starts here.
    def reset
      @now = START
      @tick = 0.0
      @drawn = 0
      @monotonic = nil
    end

    # Let *seconds* pass; the new time. `Time#to_f` gives some floats back as their neighbours; only times that it gives back
    # as they are can be told in a recording.
    def advance(seconds)
      @now = (@now + seconds).round(6)
      @now = Time.at(@now).to_f until Time.at(@now).to_f == @now
      @now
    end

    # From now on every look at the clock moves it on, as a real clock would.
    def let_run(seconds_a_look)
      @tick = seconds_a_look
    end

    # While the block runs, each look at the monotonic clock is *seconds* after the last one.
    def with_monotonic_steps(seconds)
      @monotonic = [1000.0, seconds]
      yield
    ensure
      @monotonic = nil
    end

    # The next reading of the monotonic clock in seconds; nil where it is the real one.
    def look_at_monotonic
      return nil unless @monotonic

      @monotonic[0] = (@monotonic[0] + @monotonic[1]).round(6)
    end

    def look
      @now.tap { advance(@tick) if @tick.positive? }
    end

    # A different digest at each draw, the same in each recording.
    def hex(bytes)
      @drawn += 1
      Digest::SHA512.hexdigest("draw #{@drawn}")[0, bytes * 2]
    end
  end

  # `Time.now` is where Sidekiq, Active Job and Active Support all look.
  module Clock
    def now(*)
      at(FrozenWorld.look)
    end
  end

  module Draws
    def hex(bytes = 16)
      FrozenWorld.hex(bytes)
    end

    def uuid
      FrozenWorld.hex(16).unpack("a8a4a4a4a12").join("-")
    end
  end

  # Since 8.0 Sidekiq reads the time of payloads here, in milliseconds. Durations of jobs and iterations are read here too, and
  # so are the time-outs of the Redis client, which mind no steady steps.
  module ProcessClocks
    def clock_gettime(clock, unit = :float_second)
      return (FrozenWorld.look * 1000).floor if clock == ::Process::CLOCK_REALTIME && unit == :millisecond

      held = FrozenWorld.look_at_monotonic if clock == ::Process::CLOCK_MONOTONIC
      return super unless held

      unit == :millisecond ? (held * 1000).round : held
    end
  end

  # `spread_interval` draws a number from 0 to 1 for each job.
  module Spread
    private

    def rand
      SPREAD
    end
  end

  # Sidekiq draws the jitter by `rand(10)` (6.0: 30; 8.x: a larger range), from the object that retries.
  module Jitter
    private

    def rand(limit)
      JITTER % limit
    end
  end

  def self.install
    reset
    Time.singleton_class.prepend(Clock)
    SecureRandom.singleton_class.prepend(Draws)
    Process.singleton_class.prepend(ProcessClocks)
    Sidekiq::Client.prepend(Spread)
    Sidekiq::JobRetry.prepend(Jitter)
  end
end
