# frozen_string_literal: true

# Jobs of batches for books that are kept while processes are killed: `tests/support/batch_program.py` is the same in
# Python. Run as a program, with a first number, a count, and jobs of each, it opens batches and prints a line for each
# whose block was left.
#
# BATCH_LEDGER names the file that a member's start is noted in. BATCH_FAULT, such as "finish after 12", kills the process
# at the nth passage of a step.

require "sidekiq"
require ENV.fetch("SIDEKIQ_PY_SUPPORT")

FIXTURE_JOB = (Gem::Version.new(Sidekiq::VERSION) < Gem::Version.new("6.3")) ? Sidekiq::Worker : Sidekiq::Job
CALLBACKS = "callbacks"
GROWN = 3

# redis-rb 4.8 warns at each SADD of Sidekiq 6.4.1; the logs are for what matters.
if defined?(Redis) && Redis.respond_to?(:silence_deprecations=)
  Redis.silence_deprecations = true
  Redis.sadd_returns_boolean = false
end

Sidekiq.configure_server do |config|
  settings = config.respond_to?(:[]=) ? config : Sidekiq.options
  settings[:poll_interval_average] = 0.1
  Sidekiq::Scheduled::Poller.prepend(Module.new { private def initial_wait; end })
end

module BatchLedger
  FILE = File.open(ENV.fetch("BATCH_LEDGER"), File::WRONLY | File::APPEND | File::CREAT)

  def self.note
    bid, number = Thread.current[:sidekiq_py_member][SidekiqPy::Batches::KEY]
    FILE.syswrite("#{bid} #{number} ruby\n")
  end
end

module BatchFault
  STEP, MOMENT, NTH = ENV.fetch("BATCH_FAULT", "").split
  @left = NTH.to_i
  @lock = Mutex.new

  def self.pass(step, moment)
    return unless step == STEP && moment == MOMENT

    ::Process.kill(:KILL, ::Process.pid) if @lock.synchronize { (@left -= 1).zero? }
  end

  # Around calls of a method.
  def self.at(step)
    pass(step, "before")
    yield.tap { pass(step, "after") }
  end
end

if BatchFault::STEP
  SidekiqPy::Batches.singleton_class.prepend(Module.new do
    def start(...) = BatchFault.at("start") { super }

    def finish(...) = BatchFault.at("finish") { super }

    def step(name, ...) = BatchFault.at(name) { super }

    def evaluate(conn, script, ...)
      return super unless script == SidekiqPy::Batches::PUSH

      BatchFault.at("add") { super }
    end
  end)
end

class LedgerJob
  include FIXTURE_JOB
  sidekiq_options queue: "ruby", retry: 25
  sidekiq_retry_in { |_count, _error| 1 }

  def perform(*)
    BatchLedger.note
    BatchFault.at("perform") { deed }
  end

  def deed; end
end

class RubyTick < LedgerJob; end

class RubyDoomed < LedgerJob
  sidekiq_options retry: 0

  def deed
    raise ArgumentError, "as it was told"
  end
end

class RubyGrow < LedgerJob
  def deed
    SidekiqPy::Batch.current.jobs { GROWN.times { RubyTick.perform_async } }
  end
end

# A child's callback, of which its parent hears.
class RubyCalled < LedgerJob
  def deed
    BatchFault.at("callback") {}
  end
end

def open_batch(number, count)
  batch = SidekiqPy::Batch.new
  batch.description = number.to_s
  batch.callback_queue = CALLBACKS
  batch.track = number.even?
  %w[complete success death].each { |event| batch.on(event, "called", number) }
  batch.jobs do
    Sidekiq::Client.push_bulk("class" => RubyTick, "args" => [[]] * (count / 2))
    Sidekiq::Client.push_bulk("class" => "tick", "queue" => "default", "args" => [[number]] * (count - count / 2))
    RubyDoomed.perform_async if number % 10 == 3
    RubyGrow.perform_async if number % 4 == 1
    next unless number % 5 == 2

    child = SidekiqPy::Batch.new
    child.description = "#{number}/child"
    child.on("complete", {"class" => "RubyCalled", "queue" => "ruby"}, number).on("success", {"class" => "called", "queue" => "default"}, number)
    child.jobs { Sidekiq::Client.push_bulk("class" => RubyTick, "args" => [[]] * (count / 4)) }
  end
end

if ARGV.size == 3
  first, count, jobs = ARGV.map(&:to_i)
  $stdout.sync = true
  (first...first + count).each { |number| open_batch(number, jobs) && puts(number) }
end
