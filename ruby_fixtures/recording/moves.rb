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
    promoted "promoted_with_millisecond_times", scheduled.merge("created_at" => 1_699_999_000_500), from: "schedule"
    promoted "promoted_to_a_retry_queue", retrying("queue" => "slow", "retry_queue" => "slow"), from: "retry", key: "queue:slow"
    promoted "promoted_with_retry_for", scheduled.merge("retry_for" => 3600), from: "schedule"
    promoted "promoted_with_retry_false", scheduled.merge("retry" => false), from: "schedule"
    promoted "promoted_with_retry_null", scheduled.merge("retry" => nil), from: "schedule"
    promoted "promoted_text_is_lost", "not json at all", from: "schedule"
    several_promoted
  end

  # Due ones of both sets, in their order, and one that is not due.
  def several_promoted
    @recorder.situation("promoted_in_order", key: "queue:default") do
      entries = [["schedule", 20, "s2"], ["schedule", 10, "s1"], ["retry", 15, "r1"], ["retry", 15, "r0"], ["schedule", 900, "later"]]
      before = entries.map do |set, seconds, jid|
        [set, DUE + seconds, add(set, DUE + seconds, (set == "retry" ? retrying : scheduled).merge("jid" => jid))]
      end
      FrozenWorld.advance(DUE + 30 - FrozenWorld.now)
      @recorder.step { promote_quietly }
      {"step" => "promote_all", "before" => before, "now" => FrozenWorld.now}
    end
  end

  # Ruby's poller logs what went wrong and polls again later.
  def promote_quietly
    Engine.promote
  rescue JSON::ParserError
    nil
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
    button "retried_by_api_retry_for", :retry, retrying("retry_for" => 3600), from: "retry", to: "queue:default"
    button "retried_by_api_retry_false", :retry, retrying("retry" => false), from: "retry", to: "queue:default"
    button "retried_by_api_without_retry_and_queue", :retry, retrying.reject { |key, _| %w[retry queue].include?(key) },
      from: "retry", to: "queue:default"
    button "added_to_queue_by_api_from_retry", :add_to_queue, retrying, from: "retry", to: "queue:default"
    button "deleted_from_schedule", :delete, scheduled, from: "schedule", to: "schedule"
    button "deleted_from_dead", :delete, retrying, from: "dead", to: "dead"
    button "rescheduled_retry", :reschedule, retrying, from: "retry", to: "retry", at: LATER
    button "rescheduled_to_integer", :reschedule, scheduled, from: "schedule", to: "schedule", at: LATER.to_i
    button "retried_from_schedule", :retry, scheduled, from: "schedule", to: "queue:default"
    button "added_to_queue_by_api_from_dead", :add_to_queue, retrying, from: "dead", to: "queue:default"
    button "killed_text", :kill, "not json at all", from: "retry", to: "dead"
    button "retried_text_is_lost", :retry, "not json at all", from: "dead", to: "queue:default"
    button "deleted_text", :delete, "not json at all", from: "dead", to: "dead"
    button "retried_by_api_in_millisecond_times", :retry, retrying("created_at" => 1_699_999_000_500, "failed_at" => 1_699_999_001_250),
      from: "retry", to: "queue:default"
    two_of_one_score
    deleted_by_jid
    scheduled_by_hand
    killed_by_hand
    every "retry_all", from: "retry", to: "queue:default"
    every "retry_all", from: "dead", to: "queue:default"
    every "kill_all", from: "retry", to: "dead"
    every "clear", from: "schedule", to: "schedule"
    queue_cleared
    queue_job_deleted
    stats_reset
    dead_set_trimmed
    dead_set_trimmed_by_count
  end

  # Of two entries at one moment only the one that was meant moves.
  def two_of_one_score
    @recorder.situation("retried_by_api_of_two_at_one_moment", key: "queue:default") do
      before = %w[first second].map { |jid| [add("retry", DUE, retrying("jid" => jid)), DUE] }
      FrozenWorld.advance(3.5)
      entry = Sidekiq::RetrySet.new.fetch(DUE, "second").first
      @recorder.step { entry.retry }
      {"step" => "retry_of_two", "jid" => "second", "from" => "retry", "before" => before, "now" => FrozenWorld.now}
    end
  end

  def deleted_by_jid
    @recorder.situation("deleted_by_jid", key: "retry") do
      before = %w[first second].map { |jid| [add("retry", DUE, retrying("jid" => jid)), DUE] }
      @recorder.step { Sidekiq::RetrySet.new.delete(DUE, "second") }
      {"step" => "delete_of_two", "jid" => "second", "from" => "retry", "before" => before, "now" => FrozenWorld.now}
    end
  end

  def scheduled_by_hand
    @recorder.situation("scheduled_by_hand", key: "schedule") do
      @recorder.step { Sidekiq::ScheduledSet.new.schedule(LATER, scheduled) }
      {"step" => "schedule", "at" => LATER, "payload" => scheduled, "now" => FrozenWorld.now}
    end
  end

  def killed_by_hand
    @recorder.situation("killed_by_hand_without_notice", key: "dead") do
      @recorder.step { Sidekiq::DeadSet.new.kill(JSON.generate(retrying), notify_failure: false) }
      {"step" => "kill_text", "member" => JSON.generate(retrying), "now" => FrozenWorld.now}
    end
  end

  # All entries of a set at once.
  def every(step, from:, to:)
    @recorder.situation("#{from}_#{step}", key: to) do
      before = [["e3", 30], ["e1", 10], ["e2", 20]].map do |jid, seconds|
        [add(from, DUE + seconds, retrying("jid" => jid, "retry_count" => seconds / 10)), DUE + seconds]
      end
      FrozenWorld.advance(3.5)
      set = {"retry" => Sidekiq::RetrySet, "dead" => Sidekiq::DeadSet, "schedule" => Sidekiq::ScheduledSet}.fetch(from).new
      @recorder.step { set.public_send(step) }
      {"step" => step, "from" => from, "before" => before, "now" => FrozenWorld.now}
    end
  end

  def queue_cleared
    @recorder.situation("queue_cleared", key: "queue:default") do
      before = queued(3)
      @recorder.step { Sidekiq::Queue.new.clear }
      {"step" => "clear_queue", "queue" => "default", "before" => before, "now" => FrozenWorld.now}
    end
  end

  def queue_job_deleted
    @recorder.situation("queue_job_deleted", key: "queue:default") do
      before = queued(3)
      job = Sidekiq::Queue.new.to_a[1]
      @recorder.step { job.delete }
      {"step" => "delete_job", "jid" => job.jid, "queue" => "default", "before" => before, "now" => FrozenWorld.now}
    end
  end

  def queued(count)
    count.times { |number| FixtureJob.perform_async("ok", number) }
    PrivateRedis.link.call("LRANGE", "queue:default", 0, -1)
  end

  def stats_reset
    @recorder.situation("stats_reset", key: "stat:processed") do
      counts = {"stat:processed" => 12, "stat:failed" => 3, "stat:processed:2023-11-14" => 5}
      counts.each { |key, count| PrivateRedis.link.call("SET", key, count) }
      @recorder.step { Sidekiq::Stats.new.reset }
      {"step" => "reset_stats", "counts_before" => counts, "now" => FrozenWorld.now}
    end
  end

  def dead_set_trimmed_by_count
    @recorder.situation("dead_set_trimmed_by_count", key: "dead") do
      5.times { |number| add("dead", FrozenWorld.now - 100 + number, "old #{number}") }
      before = sorted_set("dead")
      limits = ran = nil
      Engine.with_dead_limits(dead_max_jobs: 4) do
        PrivateRedis.link.call("LPUSH", "queue:default", JSON.generate(retrying("retry" => 0, "args" => Failures::BOOM)))
        limits = Engine.dead_limits
        ran = @recorder.step { Engine.run_next("default") }
      end
      ran.to_h.merge("step" => "run_to_death", "member" => ran.before, "from" => "dead", "before" => before).merge(limits)
    end
  end

  # One job was running and goes back to the tail, before the one that waited; and jobs of two queues.
  def by_a_stop
    @recorder.situation("hard_stop_requeues", key: "queue:default") do
      2.times { |number| FixtureJob.perform_async("ledger_and_wait_for", "fixture:started", number, "fixture:gate") }
      before = PrivateRedis.link.call("LRANGE", "queue:default", 0, -1)
      @recorder.step { Engine.hard_stop("default", threads: 1) { wait_until { length("fixture:started") == 1 } } }
      PrivateRedis.link.call("DEL", "fixture:started")
      {"step" => "hard_stop", "queue" => "default", "before" => before, "now" => FrozenWorld.now}
    end
    fetched_while_stopping
  end

  # What a thread gets from Redis when it may run nothing any more goes back as it came.
  def fetched_while_stopping
    @recorder.situation("fetched_while_stopping_goes_back", key: "queue:default") do
      raws = ["first", Failures::FOREIGN, "third"].map { |text| text.tap { PrivateRedis.link.call("LPUSH", "queue:default", text) } }
      @recorder.step { Engine.give_back_next("default") }
      {"step" => "give_back", "queue" => "default", "before" => raws.reverse, "now" => FrozenWorld.now}
    end
  end

  def dead_set_trimmed
    @recorder.situation("dead_set_trimmed", key: "dead") do
      old = FrozenWorld.now - 180 * 24 * 60 * 60
      {"too old" => old - 1, "just young enough" => old + 1}.each { |text, score| add("dead", score, text) }
      before = sorted_set("dead")
      @recorder.step { Sidekiq::DeadSet.new.kill(JSON.generate(retrying)) }
      {"step" => "kill_text", "from" => "dead", "before" => before, "member" => JSON.generate(retrying), "now" => FrozenWorld.now}
        .merge(Engine.dead_limits)
    end
  end

  def promoted(name, payload, from:, key: "queue:default")
    @recorder.situation(name, key: key) do
      raw = add(from, DUE, payload)
      FrozenWorld.advance(DUE - FrozenWorld.now + 1.125)
      @recorder.step { promote_quietly }
      {"step" => "promote", "from" => from, "before" => raw, "score" => DUE, "now" => FrozenWorld.now}
    end
  end

  # Press a button of the Web UI on the only entry of *from*; *to* is the key that shows the effect.
  def button(name, step, payload, from:, to:, at: nil)
    @recorder.situation(name, key: to) do
      raw = add(from, DUE, payload)
      FrozenWorld.advance(3.5)
      entry = Sidekiq::JobSet.new(from).fetch(DUE).first
      @recorder.step { press(entry, step, at) }
      {"step" => step.to_s, "from" => from, "before" => raw, "score" => DUE, "now" => FrozenWorld.now, "at" => at}.compact
    end
  end

  # Ruby's own buttons fail at what is no JSON, after they have taken it out of its set.
  def press(entry, step, at)
    entry.public_send(step, *at)
  rescue JSON::ParserError
    nil
  end

  def add(set, score, payload)
    raw = payload.is_a?(String) ? payload : JSON.generate(payload)
    PrivateRedis.link.call("ZADD", set, score, raw)
    raw
  end

  def length(key)
    PrivateRedis.link.call("LLEN", key)
  end

  # Pairs of member and score.
  def sorted_set(name)
    PrivateRedis.link.call("ZRANGE", name, 0, -1, "WITHSCORES").each_slice(2).map { |member, score| [member, score.to_f] }
  end

  def wait_until
    6_000.times { yield ? return : sleep(0.01) }
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
