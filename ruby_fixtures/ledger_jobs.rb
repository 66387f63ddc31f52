# frozen_string_literal: true

# A job that notes its runs in the file FIXTURE_LEDGER, for tests whose Redis may forget or whose processes are killed.

require_relative "jobs"

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
