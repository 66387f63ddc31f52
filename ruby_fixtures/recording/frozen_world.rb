# frozen_string_literal: true

require "digest"
require "securerandom"

# Everything that would differ between two recordings, held still: the clock stands until it is moved on, random ids are
# numbered digests, and the jitter of retries is a number that the recording names.
module FrozenWorld
  START = 1_700_000_000.123456
  JITTER = 7

  class << self
    attr_reader :now, :tick

    # Back to the beginning; each situation starts here.
    def reset
      @now = START
      @tick = 0.0
      @drawn = 0
    end

    # Let *seconds* pass; the new time.
    def advance(seconds)
      @now = (@now + seconds).round(6)
    end

    # From now on every look at the clock moves it on, as a real clock would.
    def let_run(seconds_a_look)
      @tick = seconds_a_look
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

  # Sidekiq draws the jitter by `rand(10)` (8.x: a larger range), from the object that retries.
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
    Sidekiq::JobRetry.prepend(Jitter)
  end
end
