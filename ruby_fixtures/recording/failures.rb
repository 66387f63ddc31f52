# frozen_string_literal: true

require_relative "classes"
require_relative "engine"

# What a failed run writes. Each input is the step itself: the bytes that were fetched, the queue, the error, the time, and
# the number that the draw of jitter gave.
class Failures
  BACKTRACE = [
    "app/jobs/fixture_job.rb:12:in `deep'",
    "app/jobs/fixture_job.rb:7:in `block in perform'",
    "app/jobs/fixture_job.rb:3:in `perform'"
  ].freeze
  BOOM = ["raise", "boom", "FixtureError", BACKTRACE].freeze

  # Long enough for several lines of base64, and not in ASCII alone.
  LONG_BACKTRACE = (1..40).map { |line| "app/jobs/\u00e9tape_#{line * 7919 % 97}.rb:#{line}:in `step_#{line * 31 % 17}'" }.freeze

  # Everything that a careless writer would bend: unknown keys between the known ones, integers past 64 bits, floats of
  # unusual text, escapes and spaces that Ruby itself would not write.
  FOREIGN = <<~'JSON'.tr("\n", " ").rstrip.freeze
    { "traceparent" : "00-ab\u002dcd-01", "retry": true, "queue": "default", "class": "FixtureJob",
    "args": ["raise", "boom", "FixtureError", ["app/x.rb:1:in `x'"],
    {"b": 123456789012345678901234567890, "a": 1e-7, "c": 1E+22, "d": 0.10, "e": "caf\u00e9 \ud83d\ude00 \/ \u2028"}],
    "big": 340282366920938463463374607431768211456, "odd": [1.50, 100e-2, -0.0, 1e15], "jid": "foreign0000000000000001",
    "created_at": 1699999000.5, "enqueued_at": 1699999000.25, "zeta": {"z": null, "a": []} }
  JSON

  # The same keys and values in Ruby's own spelling.
  CANONICAL = JSON.generate(JSON.parse(FOREIGN)).freeze

  def initialize(recorder)
    @recorder = recorder
  end

  def record
    attempts
    limits
    delays
    retry_for if Engine.since?("7.1.3")
    messages
    odd_payloads
    malformed
  end

  private

  def attempts
    failure "first_failure"
    failure "second_failure", failures: 2
    failure "third_failure", failures: 3
    failure "first_failure_backtrace", job: BacktraceJob
    failure "second_failure_backtrace", job: BacktraceJob, failures: 2
    failure "first_failure_backtrace_two_lines", job: BacktraceTwoLinesJob
    failure "first_failure_backtrace_long", job: BacktraceJob, args: ["raise", "boom", "FixtureError", LONG_BACKTRACE]
    failure "first_failure_backtrace_zero_lines", raw: payload("backtrace" => 0)
    failure "first_failure_backtrace_false", raw: payload("backtrace" => false)
    failure "first_failure_backtrace_of_a_text", raw: payload("backtrace" => "2")
    failure "tenth_failure", raw: payload("retry_count" => 8, "failed_at" => 1_699_990_000.5, "retried_at" => 1_699_999_000.5,
      "error_message" => "old", "error_class" => "OldError")
    failure "first_failure_of_many_options", job: ManyOptionsJob, from: "critical"
    failure "first_failure_of_the_wrapped", raw: payload("class" => "FixtureJob", "wrapped" => "WrappedRetryInJob")
    failure "first_failure_of_an_unknown_wrapped", raw: payload("wrapped" => "NoSuchJob")
    failure "first_failure_retry_in", job: RetryInJob
    failure "second_failure_retry_in", job: RetryInJob, failures: 2
    failure "first_failure_retry_queue", job: RetryQueueJob
    failure "second_failure_retry_queue", job: RetryQueueJob, failures: 2
    failure "first_failure_scheduled", raw: scheduled_payload
    failure "success_writes_nothing", args: ["ok"], key: "retry"
  end

  def limits
    failure "exhausted_after_three_retries", job: RetryThreeJob, failures: 4, key: "dead"
    failure "exhausted_at_once", job: RetryZeroJob, key: "dead"
    failure "exhausted_with_block", job: ExhaustedJob, key: "dead"
    failure "exhausted_dead_false", job: NeverDeadJob, key: "dead"
    failure "exhausted_discarded_by_block", job: DiscardedWhenExhaustedJob, key: "dead"
    failure "exhausted_with_failing_block", job: RaisesWhenExhaustedJob, key: "dead"
    failure "exhausted_after_25_retries", raw: payload("retry_count" => 24, "failed_at" => 1_699_990_000.5, "error_message" => "old",
      "error_class" => "OldError", "retried_at" => 1_699_999_000.5), key: "dead"
    Engine.with_max_retries(2) do
      second = {"retry_count" => 0, "failed_at" => 1_699_990_000.5, "error_message" => "old", "error_class" => "OldError"}
      failure "max_retries_not_reached", raw: payload(second), more: {"max_retries" => 2}
      failure "max_retries_exhausted", raw: payload(second.merge("retry_count" => 1)), key: "dead", more: {"max_retries" => 2}
    end
    failure "exhausted_backtrace", raw: payload("retry" => 0, "backtrace" => true), key: "dead"
    failure "exhausted_retry_queue", raw: payload("retry" => 0, "retry_queue" => "slow"), key: "dead"
    failure "retry_negative_is_exhausted", raw: payload("retry" => -1), key: "dead"
    failure "retry_as_float_counts_as_25", raw: payload("retry" => 1.5)
    failure "retry_false_in_the_payload", raw: payload("retry" => false)
    failure "retry_false_is_forgotten", job: RetryFalseJob
    failure "retry_absent_is_taken_from_the_class", raw: without_retry("class" => "RetryThreeJob")
    failure "retry_null_is_taken_from_the_class", raw: payload("class" => "RetryThreeJob", "retry" => nil)
    failure "retry_as_text_counts_as_25", raw: payload("retry" => "3")
    failure "retry_count_at_the_limit", raw: payload("retry" => 2, "retry_count" => 1, "failed_at" => 1_699_999_900.5,
      "error_message" => "old", "error_class" => "OldError"), key: "dead"
  end

  # What a block of `sidekiq_retry_in` may answer.
  def delays
    %w[default text float zero negative nil raises].each { |answer| answered answer }
    answered "kill", key: "dead"
    answered "discard"
  end

  def answered(answer, key: "retry")
    AnsweringRetryInJob.answer = answer
    failure "retry_in_answers_#{answer}", job: AnsweringRetryInJob, key: key
  end

  # The first failure lay before, and the time to keep trying is over or not.
  def retry_for
    failed = {"retry_count" => 1, "error_message" => "old", "error_class" => "OldError"}
    long_ago, just_now = [3_700, 3_500].map { |seconds| Engine.stamp(FrozenWorld::START - seconds) }
    failure "retry_for_first_failure", job: RetryForJob
    failure "retry_for_within", raw: payload(failed.merge("retry_for" => 3600, "failed_at" => just_now))
    failure "retry_for_is_over", raw: payload(failed.merge("retry_for" => 3600, "failed_at" => long_ago)), key: "dead"
    failure "retry_for_beside_a_count", raw: payload(failed.merge("retry" => 1, "retry_for" => 3600, "failed_at" => just_now)),
      key: Engine.since?("8.1") ? "retry" : "dead"
  end

  def messages
    failure "error_message_empty", args: ["raise", "", "FixtureError", BACKTRACE]
    failure "error_message_beyond_the_basic_plane", args: ["raise", "x" * 9_998 + "\u{1F600}" * 3, "FixtureError", BACKTRACE]
    failure "error_message_cut", args: ["raise", "x" * 9_990 + "\u00e9" * 20, "FixtureError", BACKTRACE]
    failure "error_message_scrubbed", args: ["raise_invalid_utf8"]
    failure "error_message_raises", args: ["raise", "?", "SpeechlessError", BACKTRACE]
    odd_text = "\"quotes\" \\ \n \u2028 </script> \u{1F4A5}"
    failure "error_message_special_characters", args: ["raise", odd_text, "FixtureError", BACKTRACE]
    failure "error_class_namespaced", args: ["raise", "boom", "Fixtures::NestedError", BACKTRACE]
    failure "class_not_loadable", raw: payload("class" => "NoSuchJob", "args" => [])
    failure "class_not_loadable_retry_absent", raw: without_retry("class" => "NoSuchJob", "args" => [])
  end

  def odd_payloads
    failure "unknown_keys_first_failure", raw: CANONICAL
    failure "unknown_keys_second_failure", raw: CANONICAL, failures: 2
    failure "foreign_spelling_first_failure", raw: FOREIGN
    failure "jid_missing", raw: {"retry" => true, "queue" => "default", "class" => "FixtureJob", "args" => BOOM}
    failure "retry_count_null", raw: payload("retry_count" => nil)
    failure "already_dead_text_in_queue", raw: payload("dead" => true, "retry" => 0), key: "dead"
    failure "class_missing", raw: {"retry" => true, "queue" => "default", "args" => [], "jid" => "c" * 24}
    failure "queue_differs_from_where_it_was_fetched", raw: payload("queue" => "elsewhere")
  end

  # Text that is no JSON goes to `dead` as it came.
  def malformed
    {
      "text" => "not json at all", "truncated" => '{"class":"FixtureJob","args":[1', "empty" => "",
      "binary" => "\xff\xfe\x00".b, "trailing_comma" => '{"class":"FixtureJob","args":[],}',
      "lone_surrogate" => '{"class":"FixtureJob","args":["\\ud800"]}',
      "nan" => '{"class":"FixtureJob","args":[NaN]}'
    }.each { |name, raw| failure "malformed_#{name}", raw: raw, key: "dead" }
  end

  def failure(name, job: FixtureJob, args: BOOM, raw: nil, failures: 1, key: "retry", from: "default", more: {})
    @recorder.situation(name, key: key) do
      raw ? enqueue(raw) : job.perform_async(*args)
      queue = from
      (failures - 1).times do
        FrozenWorld.advance(2.654321)
        Engine.run_next(queue)
        queue = come_due
      end
      FrozenWorld.advance(2.654321)
      @recorder.step { Engine.run_next(queue) }.to_h.merge(more)
    end
  end

  # Time passes until the retry is due, and the poller moves it; the queue it went to.
  def come_due
    retry_at = PrivateRedis.link.call("ZRANGE", "retry", 0, 0, "WITHSCORES").last.to_f
    FrozenWorld.advance(retry_at - FrozenWorld.now + 0.75)
    Engine.promote
    PrivateRedis.link.call("KEYS", "queue:*").first.delete_prefix("queue:")
  end

  def enqueue(raw)
    text = raw.is_a?(String) ? raw : JSON.generate(raw)
    PrivateRedis.link.call("LPUSH", "queue:default", text)
  end

  def payload(changes = {})
    {"retry" => true, "queue" => "default", "args" => BOOM, "class" => "FixtureJob", "jid" => "a" * 24,
     "created_at" => 1_699_999_999.5, "enqueued_at" => 1_699_999_999.75}.merge(changes)
  end

  def without_retry(changes)
    payload(changes).tap { |job| job.delete("retry") }
  end

  def scheduled_payload
    {"retry" => true, "queue" => "default", "class" => "FixtureJob", "args" => BOOM, "jid" => "b" * 24,
     "created_at" => 1_699_999_000.5, "enqueued_at" => 1_699_999_999.75}
  end
end
