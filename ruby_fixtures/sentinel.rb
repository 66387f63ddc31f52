# frozen_string_literal: true

# A Sidekiq that works on the primary which a sentinel names. FIXTURE_SENTINEL is where the sentinel listens (host:port);
# its service is called `jobs`. What runs is noted in the file FIXTURE_LEDGER, as a Redis that fails over may forget.

require_relative "jobs"

host, port = ENV.fetch("FIXTURE_SENTINEL").split(":")
settings = {sentinels: [{host: host, port: port.to_i}], role: :master}
# The redis gem takes the service for a host, redis-client has a word for it.
settings[(Sidekiq::VERSION.to_i < 7) ? :url : :name] = (Sidekiq::VERSION.to_i < 7) ? "redis://jobs" : "jobs"
Sidekiq.configure_server { |config| config.redis = settings }
Sidekiq.configure_client { |config| config.redis = settings }

# A line as `tests/support/ledger.py` reads it: event, number, process, thread, nanoseconds. In one write, so that lines
# of several processes do not mix.
module FixtureLedger
  FILE = File.open(ENV.fetch("FIXTURE_LEDGER"), File::WRONLY | File::APPEND | File::CREAT)

  def self.note(event, number)
    at = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC, :nanosecond)
    FILE.syswrite("#{event} #{number} #{::Process.pid} #{Thread.current.object_id} #{at}\n")
  end
end

class TickJob
  include FIXTURE_JOB

  def perform(number)
    FixtureLedger.note("S", number)
    sleep(0.002)
    FixtureLedger.note("E", number)
  end
end
