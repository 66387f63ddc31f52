# frozen_string_literal: true

require_relative "classes"
require_relative "engine"

# Jobs that go through a collection and can stop in the middle (7.3).
class IterableJobs
  LOOK_SECONDS = 0.015625

  def initialize(recorder)
    @recorder = recorder
  end

  def record
    return unless Engine.since?("7.3")

    require "sidekiq/job/interrupt_handler"
    require_relative "iterable_classes"
    interrupted
    failed
    finished
    cancelled if Engine.since?("8")
  end

  private

  def interrupted
    enqueued
    iteration("iterable_interrupted") { CountingJob.perform_async("stop_at", 4, 2) }
    iteration("iterable_interrupted_after_the_first") { CountingJob.perform_async("stop_at", 4, 0) }
    iteration("iterable_interrupted_twice", runs: 2) { CountingJob.perform_async("stop_at_each", 4) }
    iteration("iterable_cursor_is_an_object") { PagesJob.perform_async("stop_at", 2) }
  end

  def enqueued
    @recorder.situation("iterable_enqueued", key: "queue:default") do
      @recorder.step { CountingJob.perform_async("nothing", 4) }
      {"now" => FrozenWorld.now, "job" => "CountingJob", "options" => CountingJob.get_sidekiq_options.dup, "call" => "perform_async",
       "args" => ["nothing", 4]}
    end
  end

  def failed
    iteration("iterable_failed") { CountingJob.perform_async("raise_at", 4, 2) }
    iteration("iterable_failed_at_the_first") { CountingJob.perform_async("raise_at", 4, 0) }
  end

  def finished
    iteration("iterable_finished") { CountingJob.perform_async("nothing", 4) }
    iteration("iterable_resumed_and_finished", runs: 2) { CountingJob.perform_async("stop_at", 4, 2) }
    iteration("iterable_of_nothing") { CountingJob.perform_async("nothing", 0) }
  end

  def cancelled
    @recorder.situation("iterable_cancelled_by_a_client", key: "it-#{"c" * 24}") do
      @recorder.step { Sidekiq::Client.new.cancel!("c" * 24) }
      {"step" => "cancel", "jid" => "c" * 24, "now" => FrozenWorld.now}
    end
    cancelled_and_run
  end

  # Stopped by hand after it was interrupted; the next run ends at once.
  def cancelled_and_run
    @jid = nil
    @recorder.situation("iterable_cancelled_and_run", key: -> { "it-#{@jid}" }) do
      @jid = CountingJob.perform_async("stop_at", 4, 2)
      run
      Sidekiq::Client.new.cancel!(@jid)
      before = state
      described(@recorder.step { run }, before)
    end
  end

  def iteration(name, runs: 1)
    @jid = nil
    @recorder.situation(name, key: -> { "it-#{@jid}" }) do
      @jid = yield
      (runs - 1).times { run }

      before = state
      described(@recorder.step { run }, before)
    end
  end

  def run
    FrozenWorld.advance(1.5)
    FrozenWorld.with_monotonic_steps(LOOK_SECONDS) do
      Engine.with_server_middleware([Sidekiq::Job::InterruptHandler]) { Engine.run_next("default") }
    end
  end

  def state
    PrivateRedis.link.call("HGETALL", "it-#{@jid}").each_slice(2).to_a
  end

  def described(ran, before)
    ran.to_h.merge("step" => "run_iterable", "state_before" => before, "jid" => @jid)
  end
end
