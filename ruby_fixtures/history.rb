# frozen_string_literal: true

# Lives through histories of jobs with Sidekiq's own parts, on the Redis of REDIS_URL: a history a line on stdin, as JSON,
# and a line of JSON on stdout for each: what its steps answered, and how many runs were counted.
#
# `interop_tests/support/history_engine.py` does the same with the parts of sidekiq_py; the steps are named in
# `interop_tests/support/histories.py`. Time, job ids and the jitter of retries are the same on both sides.
require "json"
require_relative "jobs"
require_relative "recording/engine"

module FrozenWorld
  class << self
    attr_writer :now, :drawn
  end
end

# As a draw of 0.75 from [0, 1) would have it, for any range.
module SameJitter
  private

  def rand(limit)
    (limit * 0.75).floor
  end
end

class History
  SETS = {"schedule" => Sidekiq::ScheduledSet, "retry" => Sidekiq::RetrySet, "dead" => Sidekiq::DeadSet}.freeze

  def live(steps)
    FrozenWorld.reset
    Engine.reset_counters
    answers = steps.map { |step| take(step) }
    {"answers" => answers, "processed" => Sidekiq::Processor::PROCESSED.reset, "failed" => Sidekiq::Processor::FAILURE.reset}
  end

  private

  def take(step)
    FrozenWorld.now, FrozenWorld.drawn = step.values_at("now", "draw")
    send("do_#{step.fetch("do")}", step)
  end

  def do_perform_async(step)
    job(step).perform_async(*step["args"])
  end

  def do_perform_in(step)
    job(step).perform_in(step["interval"], *step["args"])
  end

  def do_push(step)
    Sidekiq::Client.push(step["item"])
  end

  # What another program has written.
  def do_write(step)
    command = step["score"] ? ["zadd", step["key"], step["score"], step["text"]] : ["lpush", step["key"], step["text"]]
    Sidekiq.redis { |conn| conn.public_send(*command) }
    nil
  end

  def do_run(step)
    return if Sidekiq::Queue.new(step["queue"]).size.zero?

    Engine.run_next(step["queue"]).error&.message
  end

  def do_promote(_step)
    Engine.promote
    nil
  end

  def do_entry(step)
    entries = in_order(set(step))
    return if entries.empty?

    entry = entries[step["number"] % entries.size]
    arguments = step.key?("at") ? [step["at"]] : []
    return if step["deed"] == "reschedule" && JSON.generate(JSON.parse(entry.value)) != entry.value

    entry.public_send(step["deed"], *arguments)
    nil
  end

  # Before 8.1 `retry_all` begins with the highest score; sidekiq_py begins with the lowest one for any release.
  def do_all(step)
    if step["deed"] == "retry_all" && !Engine.since?("8.1")
      in_order(set(step)).each(&:retry)
    else
      set(step).public_send(step["deed"])
    end
    nil
  end

  def do_delete_queued(step)
    jobs = Sidekiq::Queue.new(step["queue"]).to_a
    jobs[step["number"] % jobs.size].delete unless jobs.empty?
    nil
  end

  def do_clear_queue(step)
    Sidekiq::Queue.new(step["queue"]).clear
    nil
  end

  def job(step)
    job_class = Object.const_get(step["job"])
    step["set"] ? job_class.set(step["set"].transform_keys(&:to_sym)) : job_class
  end

  def in_order(set)
    set.to_a.sort_by { |entry| [entry.score, entry.value] }
  end

  def set(step)
    SETS.fetch(step["set"]).new
  end
end

FrozenWorld.install
Sidekiq::JobRetry.prepend(SameJitter)
Engine.listen
$stdout.sync = true
puts "ready"
while (line = $stdin.gets)
  puts JSON.generate(History.new.live(JSON.parse(line)))
end
