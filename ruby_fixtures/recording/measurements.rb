# frozen_string_literal: true

require_relative "engine"

# What later releases count: run times by class and minute, and marks of deploys.
class Measurements
  # Each look at the clock is so much later; a job's run time is one look from its start to its end.
  RUN_SECONDS = 0.037

  def initialize(recorder)
    @recorder = recorder
  end

  def record
    return unless Engine.since?("7")

    require "sidekiq/metrics/tracking"
    require "sidekiq/deploy"
    metrics("metrics_of_successes", [["ok"], ["ok", 2], ["ok", 3]])
    metrics("metrics_of_a_failure", [["raise"], ["ok"]])
    metrics("metrics_of_a_wrapped_job", [["ok"]], {"wrapped" => "Inner::Job"})
    metrics("metrics_of_nothing", [])
    {"19_ms" => 0.019, "20_ms" => 0.02, "a_minute" => 60.5, "an_hour" => 3600.25}.each do |name, seconds|
      metrics("metrics_of_#{name}", [["ok"]], seconds: seconds)
    end
    metrics("metrics_at_a_minute_below_ten", [["ok"]], at: 1_700_006_700.5)
    deploy_mark
    deploy_marked_twice
  end

  private

  def metrics(name, runs, keys = {}, at: nil, seconds: RUN_SECONDS)
    @recorder.situation(name, key: minute_key(at)) do
      runs.each { |args| Sidekiq::Client.push({"class" => "FixtureJob", "args" => args}.merge(keys)) }
      tracker, = FrozenWorld.with_monotonic_steps(seconds) { Engine.with_metrics { runs.each { Engine.run_next("default") } } }
      FrozenWorld.advance(at - FrozenWorld.now) if at
      @recorder.step { tracker.flush }
      {"step" => "flush_metrics", "runs" => runs, "run_seconds" => seconds, "now" => FrozenWorld.now,
       "class" => keys["wrapped"] || "FixtureJob"}
    end
  end

  def minute_key(at)
    moment = Time.at(at || FrozenWorld::START).utc
    moment.strftime(Engine.since?("8") ? "j|%y%m%d|%-H:%M" : "j|%Y%m%d|%-H:%-M")
  end

  def deploy_mark
    @recorder.situation("deploy_mark", key: "20231114-marks") do
      @recorder.step { Sidekiq::Deploy.new(Sidekiq.redis_pool).mark!(label: "abc123 Fix the \u00e9tape") }
      {"step" => "deploy_mark", "label" => "abc123 Fix the \u00e9tape", "now" => FrozenWorld.now}
    end
  end

  # The same label within a minute leaves one mark.
  def deploy_marked_twice
    @recorder.situation("deploy_marked_twice", key: "20231114-marks") do
      Sidekiq::Deploy.new(Sidekiq.redis_pool).mark!(label: "one")
      before = PrivateRedis.link.call("HGETALL", "20231114-marks").each_slice(2).to_a
      @recorder.step { Sidekiq::Deploy.new(Sidekiq.redis_pool).mark!(label: "one") }
      {"step" => "deploy_mark", "label" => "one", "state_before" => before, "now" => FrozenWorld.now}
    end
  end
end
