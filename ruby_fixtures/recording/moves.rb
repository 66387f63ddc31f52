# frozen_string_literal: true

require_relative "engine"
require_relative "failures"

# What becomes of a payload that is moved and not run: by the poller, by the data API and the Web UI's buttons, by a stop.
# Each input holds the bytes before, the step, the time, and the step's own values.
class Moves
  DUE = 1_700_000_050.25
  LATER = 1_700_009_000.5

  def initialize(recorder)
    @recorder = recorder
  end

  def record
    by_the_poller
    by_the_api
    by_a_stop
  end

  private

  def by_the_poller
    promoted "promoted_from_schedule", scheduled, from: "schedule"
    promoted "promoted_from_retry", retrying, from: "retry"
    promoted "promoted_without_retry_and_queue", scheduled.reject { |key, _| %w[retry queue].include?(key) }, from: "schedule"
    promoted "promoted_with_at_in_the_payload", scheduled.merge("at" => 1_700_000_900.5), from: "schedule", key: "schedule"
    promoted "promoted_options_of_the_class_are_not_added", scheduled.merge("class" => "ManyOptionsJob"), from: "schedule"
    promoted "unknown_keys_promoted_from_schedule", Failures::CANONICAL, from: "schedule"
    promoted "unknown_keys_promoted_from_retry", Failures::CANONICAL, from: "retry"
    promoted "foreign_spelling_promoted", Failures::FOREIGN, from: "schedule"
  end

  def by_the_api
    button "retried_by_api", :retry, retrying, from: "retry", to: "queue:default"
    button "retried_by_api_first_failure", :retry, retrying("retry_count" => 0), from: "retry", to: "queue:default"
    button "retried_from_dead", :retry, retrying, from: "dead", to: "queue:default"
    button "added_to_queue_by_api", :add_to_queue, scheduled, from: "schedule", to: "queue:default"
    button "killed_by_api", :kill, retrying, from: "retry", to: "dead"
    button "killed_from_schedule", :kill, scheduled, from: "schedule", to: "dead"
    button "deleted_by_api", :delete, retrying, from: "retry", to: "retry"
    button "rescheduled", :reschedule, scheduled, from: "schedule", to: "schedule", at: LATER
    button "unknown_keys_retried_by_api", :retry, Failures::CANONICAL, from: "retry", to: "queue:default"
    button "unknown_keys_killed_by_api", :kill, Failures::CANONICAL, from: "retry", to: "dead"
    button "unknown_keys_rescheduled", :reschedule, Failures::CANONICAL, from: "schedule", to: "schedule", at: LATER
    button "foreign_spelling_retried_by_api", :retry, Failures::FOREIGN, from: "retry", to: "queue:default"
    button "foreign_spelling_killed_by_api", :kill, Failures::FOREIGN, from: "retry", to: "dead"
    button "foreign_spelling_rescheduled_leaves_a_ghost", :reschedule, Failures::FOREIGN, from: "schedule", to: "schedule", at: LATER
    dead_set_trimmed
  end

  # One job was running and goes back to the tail, before the one that waited.
  def by_a_stop
    @recorder.situation("hard_stop_requeues", key: "queue:default") do
      2.times { |number| FixtureJob.perform_async("ledger_and_wait_for", "fixture:started", number, "fixture:gate") }
      before = queue("default")
      Engine.hard_stop("default", threads: 1) { wait_until { length("fixture:started") == 1 } }
      Sidekiq.redis { |conn| conn.del("fixture:started") }
      {"step" => "hard_stop", "before" => before, "now" => FrozenWorld.now}
    end
  end

  def dead_set_trimmed
    @recorder.situation("dead_set_trimmed", key: "dead") do
      old = FrozenWorld.now - 180 * 24 * 60 * 60
      {"too old" => old - 1, "just young enough" => old + 1}.each { |text, score| add("dead", score, text) }
      before = sorted_set("dead")
      Sidekiq::DeadSet.new.kill(JSON.generate(retrying))
      limits = Sidekiq.options.slice(:dead_timeout_in_seconds, :dead_max_jobs).transform_keys(&:to_s)
      {"step" => "kill", "before" => before, "member" => JSON.generate(retrying), "now" => FrozenWorld.now, **limits}
    end
  end

  def promoted(name, payload, from:, key: "queue:default")
    @recorder.situation(name, key: key) do
      raw = add(from, DUE, payload)
      FrozenWorld.advance(DUE - FrozenWorld.now + 1.125)
      Engine.promote
      {"step" => "promote", "from" => from, "before" => raw, "score" => DUE, "now" => FrozenWorld.now}
    end
  end

  # Press a button of the Web UI on the only entry of *from*; *to* is the key that shows the effect.
  def button(name, step, payload, from:, to:, at: nil)
    @recorder.situation(name, key: to) do
      raw = add(from, DUE, payload)
      FrozenWorld.advance(3.5)
      entry = Sidekiq::JobSet.new(from).fetch(DUE).first
      entry.public_send(step, *at)
      {"step" => step.to_s, "from" => from, "before" => raw, "score" => DUE, "now" => FrozenWorld.now, "at" => at}.compact
    end
  end

  def add(set, score, payload)
    raw = payload.is_a?(String) ? payload : JSON.generate(payload)
    Sidekiq.redis { |conn| conn.zadd(set, score.to_s, raw) }
    raw
  end

  def queue(name)
    Sidekiq.redis { |conn| conn.lrange("queue:#{name}", 0, -1) }
  end

  def length(key)
    Sidekiq.redis { |conn| conn.llen(key) }
  end

  def sorted_set(name)
    Sidekiq.redis { |conn| conn.zrange(name, 0, -1, with_scores: true) }
  end

  def wait_until
    500.times { yield ? return : sleep(0.01) }
    raise "waited in vain for the jobs to start"
  end

  def scheduled
    {"retry" => true, "queue" => "default", "class" => "FixtureJob", "args" => ["ok", 1], "jid" => "e" * 24,
     "created_at" => 1_699_999_000.5}
  end

  def retrying(changes = {})
    {
      "retry" => true, "queue" => "default", "args" => ["ok", 1], "class" => "FixtureJob", "jid" => "f" * 24,
      "created_at" => 1_699_999_000.5, "enqueued_at" => 1_699_999_000.75, "error_message" => "boom",
      "error_class" => "FixtureError", "failed_at" => 1_699_999_001.25, "retry_count" => 2, "retried_at" => 1_699_999_100.125
    }.merge(changes)
  end
end
