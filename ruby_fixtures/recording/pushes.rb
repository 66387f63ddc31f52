# frozen_string_literal: true

require_relative "classes"
require_relative "engine"

# What a client writes. Each input is a call that any language can make:
#
#   job, options  the class and its options, in their order (none for pushes by name)
#   set           what `.set(...)` is given, in order; absent without `.set`; a second `.set` is merged over the first
#   call          perform_async, perform_in, perform_at, perform_bulk, push or push_bulk
#   interval      the first argument of perform_in and perform_at
#   args          the arguments (perform_bulk: one list a job)
#   bulk_options  the keyword arguments of perform_bulk
#   item          what Client.push and Client.push_bulk are given
#   defaults      the options that every job has by default, where they were changed
#   refused       the class of the error that the call raised; nothing was written
class Pushes
  EVERY_TYPE = [
    nil, true, false, 0, -1, 2**63, 2**64, -(10**30), 1.5, -0.0, "text", "", [], {}, [[1, [2]], {"a" => {"b" => nil}}]
  ].freeze
  FLOATS = [
    0.1, 100.0, 1e14, 1e15, 1e16, 123456789012345.6, 1234567890123456.0, 1234567890123456.7, 1e22, 1e23, 1e100, 0.0001,
    0.00001, 1e-7, 1e-9, 1e-10, 5e-324, 1.7976931348623157e308, -2.5e-8, 1700000000.123456
  ].freeze
  EPOCH_FLOATS = [1_700_000_000.0, 1_700_000_000.1, 1_700_000_000.1234567, 1_699_999_999.999999, 4_102_444_800.000001].freeze
  LOW_VIP = {queue: "low", tags: ["vip"]}.freeze
  TWO = [["ok", 1], ["ok", 2]].freeze
  THREE = [["ok", 1], ["ok", 2], ["ok", 3]].freeze
  TWO_TIMES = [1_700_000_100.5, 1_700_000_200].freeze
  TEXTS = ["\u00e9\u4e2d\u{1F600}", "\u2028\u2029\u007f</>&", "\b\f\n\r\t\u0000\u0001\u001f", "\"\\/", "\u{10FFFF}\uFFFF\u0085"].freeze

  def initialize(recorder)
    @recorder = recorder
  end

  def record
    immediate
    scheduled
    with_set
    by_name
    bulk if Engine.since?("6.3")
    bulk_by_name
    with_middleware
    with_other_defaults
    refused
  end

  private

  def immediate
    call "perform_async", args: ["ok", 1]
    call "perform_async_without_arguments", args: []
    call "perform_async_every_json_type", args: EVERY_TYPE
    call "perform_async_floats", args: FLOATS
    call "perform_async_texts", args: TEXTS
    call "perform_async_hash_argument", args: [{"b" => 1, "a" => {"10" => 2, "9" => [3]}}]
    symbols = [:ok, {key: :value}]
    call "perform_async_symbols_become_strings", args: symbols unless Engine.since?("7")
    call "perform_async_symbols_are_refused", args: symbols if Engine.since?("7")
    call "perform_async_text_of_4_kilobytes", args: ["\u00e9\u4e2d " * 700]
    call "perform_async_deepest_nesting", args: [(2..98).inject([]) { |inner, _| [inner] }]
    call "perform_async_numbers_as_keys", args: [{1 => 2, nil => 3, 1.5 => 4}] unless Engine.since?("7")
    call "perform_async_epoch_floats", args: EPOCH_FLOATS
    call "perform_async_retry_false", job: RetryFalseJob, args: ["ok"]
    call "perform_async_retry_zero", job: RetryZeroJob, args: ["ok"]
    call "perform_async_retry_three", job: RetryThreeJob, args: ["ok"]
    call "perform_async_backtrace", job: BacktraceJob, args: ["ok"]
    call "perform_async_tags", job: TaggedJob, args: ["ok"]
    call "perform_async_dead_false", job: NeverDeadJob, args: ["ok"]
    call "perform_async_custom_queue", job: CriticalJob, args: ["ok"], key: "queue:critical"
    call "perform_async_many_options", job: ManyOptionsJob, args: ["ok"], key: "queue:critical"
    call "perform_async_namespaced_class", job: Billing::InvoiceJob, args: ["ok"]
    call "perform_async_display_class", job: DisplayedJob, args: ["ok"]
    call "perform_async_queue_as_symbol", job: SymbolQueueJob, args: ["ok"], key: "queue:critical"
    call "perform_async_retry_queue", job: RetryQueueJob, args: ["ok"]
    call "perform_async_retry_for", job: RetryForJob, args: ["ok"]
    call("perform_async_while_the_clock_runs", args: ["ok"]) { FrozenWorld.let_run(0.000137) }
  end

  def scheduled
    call "perform_in", method: :perform_in, interval: 300, args: ["ok", 1], key: "schedule"
    call "perform_in_float", method: :perform_in, interval: 0.25, args: ["ok"], key: "schedule"
    call "perform_in_zero_is_now", method: :perform_in, interval: 0, args: ["ok"]
    call "perform_in_the_past_is_now", method: :perform_in, interval: -10, args: ["ok"]
    call "perform_in_many_options", job: ManyOptionsJob, method: :perform_in, interval: 60, args: ["ok"], key: "schedule"
    call "perform_at", method: :perform_at, interval: 1_700_003_600.5, args: ["ok", 1], key: "schedule"
    call "perform_at_integer", method: :perform_at, interval: 4_000_000_000, args: ["ok"], key: "schedule"
    call "perform_at_the_past_is_now", method: :perform_at, interval: 1_600_000_000, args: ["ok"]
    call "perform_at_this_moment_is_now", method: :perform_at, interval: FrozenWorld::START, args: ["ok"]
    call "perform_at_time", method: :perform_at, interval: Time.at(1_700_003_600, 123_456, :usec), args: ["ok"], key: "schedule"
    call "perform_at_nanoseconds", method: :perform_at, interval: 1_700_003_600.1234567, args: ["ok"], key: "schedule"
    call "perform_at_far_future", method: :perform_at, interval: 1e16, args: ["ok"], key: "schedule"
    call "perform_in_largest_interval", method: :perform_in, interval: 999_999_999, args: ["ok"], key: "schedule"
    call "perform_in_smallest_moment_is_past", method: :perform_in, interval: 1_000_000_000, args: ["ok"]
    call "perform_in_a_microsecond", method: :perform_in, interval: 0.000001, args: ["ok"], key: "schedule"
    call "perform_in_every_json_type", method: :perform_in, interval: 60, args: EVERY_TYPE, key: "schedule"
    call "perform_in_floats", method: :perform_in, interval: 60, args: FLOATS, key: "schedule"
    call "perform_in_custom_queue", job: CriticalJob, method: :perform_in, interval: 60, args: ["ok"], key: "schedule"
    call "perform_in_retry_for", job: RetryForJob, method: :perform_in, interval: 60, args: ["ok"], key: "schedule"
  end

  def with_set
    call "set_queue", set: {queue: "low"}, args: ["ok"], key: "queue:low"
    call "set_retry_false", set: {retry: false}, args: ["ok"]
    call "set_new_keys", set: {tags: ["vip"], backtrace: 3, retry: 2}, args: ["ok"]
    over = {dead: true, queue: "low", extra: 1}
    call "set_over_class_options", job: ManyOptionsJob, set: over, args: ["ok"], key: "queue:low"
    call "set_perform_in", set: LOW_VIP, method: :perform_in, interval: 60, args: ["ok"], key: "schedule"
    call "set_jid", set: {jid: "chosen-by-the-caller"}, args: ["ok"]
    call "set_queue_as_symbol", set: {queue: :low}, args: ["ok"], key: "queue:low"
    call "set_retry_true", job: RetryThreeJob, set: {retry: true}, args: ["ok"]
    call "set_retry_zero", set: {retry: 0}, args: ["ok"]
    call "set_retry_five", set: {retry: 5}, args: ["ok"]
    call "set_retry_null", set: {retry: nil}, args: ["ok"]
    call "set_backtrace_true", set: {backtrace: true}, args: ["ok"]
    call "set_backtrace_false", job: BacktraceJob, set: {backtrace: false}, args: ["ok"]
    call "set_dead_false", set: {dead: false}, args: ["ok"]
    call "set_tags", job: TaggedJob, set: {tags: ["\u00e9", "b c"]}, args: ["ok"]
    call "set_retry_queue", set: {retry_queue: "slow"}, args: ["ok"]
    call "set_display_class", set: {display_class: "Shown", log_level: "warn"}, args: ["ok"]
    call "set_created_at", set: {created_at: 1_699_999_999.5}, args: ["ok"]
    call "set_text_keys", set: {"queue" => "low", "tags" => ["vip"]}, args: ["ok"], key: "queue:low"
    call "set_nothing", set: {}, args: ["ok"]
    call "set_twice", set: {queue: "middle", retry: 2}, again: {queue: "low", tags: ["vip"]}, args: ["ok"], key: "queue:low"
    call "set_retry_for", set: {retry_for: 7200}, args: ["ok"]
    call "set_retry_for_float", set: {retry_for: 90.75}, args: ["ok"]
    call "set_unknown_keys", set: {traceparent: "00-ab-01", bid_like: {"b" => 1, "a" => 10**29}}, args: ["ok"]
    call "set_perform_in_every_option", job: ManyOptionsJob, set: {retry: 1, dead: true, extra: 1, queue: "low"},
      method: :perform_in, interval: 60, args: ["ok"], key: "schedule"
    call "set_perform_at", set: {queue: "low"}, method: :perform_at, interval: 1_700_003_600.5, args: ["ok"], key: "schedule"
    call "set_perform_in_the_past_is_now", set: {queue: "low"}, method: :perform_in, interval: -1, args: ["ok"], key: "queue:low"
    set_since_six_three if Engine.since?("6.3")
    call "set_profile", set: {profile: "token", profiler_options: {"mode" => "wall"}}, args: ["ok"] if Engine.since?("8")
  end

  # Options of `set` by which a job waits, as Active Job spells them.
  def set_since_six_three
    call "set_wait", set: {wait: 60}, args: ["ok"], key: "schedule"
    call "set_wait_until", set: {wait_until: 1_700_003_600.5}, args: ["ok"], key: "schedule"
    call "set_wait_with_options", set: {wait: 0.5, queue: "low", tags: ["vip"]}, args: ["ok"], key: "schedule"
    call "set_wait_zero_is_now", set: {wait: 0}, args: ["ok"]
    call "set_wait_the_past_is_now", set: {wait: -5}, args: ["ok"]
    call "set_perform_bulk", set: LOW_VIP, method: :perform_bulk, args: TWO, key: "queue:low"
  end

  def by_name
    push "push_by_name", {"class" => "FixtureJob", "args" => ["ok", 1]}
    push "push_by_class", {"class" => RetryThreeJob, "args" => ["ok", 1]}
    push "push_at_float", ok("at" => 1_700_003_600.5), key: "schedule"
    push "push_at_integer", ok("at" => 4_000_000_000), key: "schedule"
    push "push_at_the_past_stays_scheduled", ok("at" => 1_600_000_000.0), key: "schedule"
    known = {"jid" => "0123456789abcdef01234567", "created_at" => 1_699_999_999.5, "enqueued_at" => 1_699_999_999.75}
    push "push_every_known_key", ok(known.merge("retry" => 5, "queue" => "low")), key: "queue:low"
    push "push_unknown_keys", {"traceparent" => "00-ab-01"}.merge(ok("big" => 10**29, "zeta" => {"b" => 1, "a" => 2}))
    push "push_retry_null", ok("retry" => nil)
    push "push_retry_false", ok("retry" => false)
    push "push_retry_for", ok("retry_for" => 3600.5)
    push "push_queue_as_symbol", ok("queue" => :low), key: "queue:low"
    push "push_at_far_future", ok("at" => 1e17), key: "schedule"
    push "push_at_negative", ok("at" => -1.5), key: "schedule"
    push "push_at_with_enqueued_at", ok("at" => 1_700_003_600.5, "enqueued_at" => 1_699_999_999.75), key: "schedule"
    push "push_args_before_class", {"args" => ["ok", 1], "queue" => "low", "class" => "FixtureJob"}, key: "queue:low"
    push "push_of_a_class_with_many_options", {"class" => ManyOptionsJob, "args" => ["ok"], "retry" => 3, "extra" => 1},
      key: "queue:critical"
    push "push_to_a_queue_of_odd_name", ok("queue" => "a b|\u00e9:c"), key: "queue:a b|\u00e9:c"
    push "push_of_a_class_of_odd_name", ok("class" => "\u00c9tape::Job\u00e9 2")
    push "push_wrapped", ok("wrapped" => "Inner", "class" => "Outer")
    push "push_every_json_type", {"class" => "FixtureJob", "args" => EVERY_TYPE}
    push "push_retry_in_the_item", {"retry" => 3, "args" => ["ok"], "class" => "FixtureJob"}
  end

  def bulk
    call "perform_bulk", method: :perform_bulk, args: THREE
    call "perform_bulk_many_options", job: ManyOptionsJob, method: :perform_bulk, args: TWO, key: "queue:critical"
    call "perform_bulk_at_list", set: {at: TWO_TIMES}, method: :perform_bulk, args: TWO, key: "schedule"
    call "perform_bulk_at_scalar", set: {at: TWO_TIMES.first}, method: :perform_bulk, args: TWO, key: "schedule"
    call "perform_bulk_nothing", method: :perform_bulk, args: []
    call "perform_bulk_at_the_past", set: {at: 1_600_000_000.5}, method: :perform_bulk, args: TWO, key: "schedule"
    call "perform_bulk_every_json_type", method: :perform_bulk, args: [EVERY_TYPE, FLOATS, TEXTS, []]
    call "perform_bulk_in_slices", method: :perform_bulk, args: THREE, bulk_options: {batch_size: 2}
    scheduled_slices = {set: {at: [*TWO_TIMES, 1_700_000_300]}, bulk_options: {batch_size: 2}}
    call "perform_bulk_at_list_in_slices", method: :perform_bulk, args: THREE, key: "schedule", **scheduled_slices if Engine.since?("7")
    call "perform_bulk_at_option", method: :perform_bulk, args: TWO, bulk_options: {at: 1_700_000_100}, key: "schedule" if Engine.since?("8")
    spread = {method: :perform_bulk, args: THREE, key: "schedule"}
    call "perform_bulk_spread", bulk_options: {spread_interval: 60}, **spread if Engine.since?("8.0.8")
    call "perform_bulk_spread_is_five_at_least", bulk_options: {spread_interval: 1}, **spread if Engine.since?("8.0.8")
  end

  def bulk_by_name
    push "push_bulk", bulk_of(THREE), bulk: true
    push "push_bulk_at_list", bulk_of(TWO, "at" => TWO_TIMES), bulk: true, key: "schedule"
    push "push_bulk_at_scalar", bulk_of(TWO, "at" => TWO_TIMES.first), bulk: true, key: "schedule"
    push "push_bulk_options", bulk_of(TWO, "queue" => "low", "retry" => 2, "tags" => ["vip"]), bulk: true, key: "queue:low"
    push "push_bulk_nothing", bulk_of([]), bulk: true
    push "push_bulk_at_integer", bulk_of(TWO, "at" => 4_000_000_000), bulk: true, key: "schedule"
    push "push_bulk_of_a_class", bulk_of(TWO).merge("class" => ManyOptionsJob), bulk: true, key: "queue:critical"
    push "push_bulk_jid_of_one", bulk_of(THREE.take(1), "jid" => "0123456789abcdef01234567"), bulk: true
    push "push_bulk_in_slices", bulk_of(THREE, "batch_size" => 2), bulk: true if Engine.since?("7")
    push "push_bulk_spread", bulk_of(THREE, "spread_interval" => 60), bulk: true, key: "schedule" if Engine.since?("8.0.8")
  end

  def ok(more = {})
    {"class" => "FixtureJob", "args" => ["ok"]}.merge(more)
  end

  def bulk_of(args, more = {})
    {"class" => "FixtureJob", "args" => args}.merge(more)
  end

  # Keys that client middleware adds stand before `enqueued_at`.
  def with_middleware
    adding = Class.new do
      def call(_job_class, job, _queue, _pool)
        job["locale"] ||= "de"
        job["cattr"] ||= {"user_id" => 7}
        yield
      end
    end
    added = {"middleware_adds" => {"locale" => "de", "cattr" => {"user_id" => 7}}}
    with_client_middleware(adding) do
      call "middleware_perform_async", args: ["ok"], more: added
      call "middleware_perform_in", method: :perform_in, interval: 60, args: ["ok"], key: "schedule", more: added
      call "middleware_perform_bulk", method: :perform_bulk, args: TWO, more: added if Engine.since?("6.3")
      push "middleware_push_bulk", bulk_of(TWO), bulk: true, more: added
      push "middleware_push_bulk_at", bulk_of(TWO, "at" => TWO_TIMES.first), bulk: true, key: "schedule", more: added
    end
    stopping_and_moving
  end

  # Middleware that stops the jobs of an even number, and middleware that sends each job to a queue of its own.
  def stopping_and_moving
    even = Class.new do
      def call(_class, job, _queue, _pool)
        yield unless job["args"].last.even?
      end
    end
    with_client_middleware(even) do
      more = {"middleware_stops" => "jobs whose last argument is even"}
      push "middleware_stops_a_push", {"class" => "FixtureJob", "args" => ["ok", 2]}, more: more
      push "middleware_stops_some_of_bulk", bulk_of(THREE), bulk: true, more: more
    end
    moving = Class.new do
      def call(_class, job, _queue, _pool)
        job["queue"] = "q#{job["args"].last}"
        yield
      end
    end
    with_client_middleware(moving) do
      more = {"middleware_moves" => "each job to the queue q<last argument>"}
      push "middleware_moves_a_push", {"class" => "FixtureJob", "args" => ["ok", 2]}, key: "queue:q2", more: more
      push "middleware_moves_each_of_bulk", bulk_of(THREE), bulk: true, key: "queue:q1", more: more
    end
  end

  def with_other_defaults
    defaults = {"retry" => 7, "queue" => "other", "backtrace" => 2}
    Engine.with_default_job_options(defaults) do
      push "defaults_push", ok, key: "queue:other", more: {"defaults" => defaults}
      push "defaults_push_over", ok("queue" => "low"), key: "queue:low", more: {"defaults" => defaults}
    end
  end

  # What a client will not take.
  def refused
    push "refused_args_absent", {"class" => "FixtureJob"}
    push "refused_args_no_list", {"class" => "FixtureJob", "args" => {"a" => 1}}
    push "refused_class_absent", {"args" => []}
    push "refused_class_a_number", {"class" => 1, "args" => []}
    push "refused_at_text", ok("at" => "1700000100.5")
    push "refused_tags_text", ok("tags" => "vip")
    push "queue_of_no_name", ok("queue" => ""), key: "queue:"
    push "refused_nesting_too_deep", {"class" => "FixtureJob", "args" => [(2..99).inject([]) { |inner, _| [inner] }]}
    push "refused_retry_for_too_large", ok("retry_for" => 1_000_000_001) if Engine.since?("7.1.3")
    push "refused_bulk_args_flat", bulk_of([1, 2]), bulk: true
    push "refused_bulk_at_empty", bulk_of(TWO, "at" => []), bulk: true
    push "refused_bulk_at_of_another_size", bulk_of(TWO, "at" => [1_700_000_100.5]), bulk: true if Engine.since?("6.4")
    push "refused_bulk_jid_of_many", bulk_of(TWO, "jid" => "a" * 24), bulk: true if Engine.since?("7")
  end

  def with_client_middleware(middleware)
    Engine.settings.client_middleware.add(middleware)
    yield
  ensure
    Engine.settings.client_middleware.remove(middleware)
  end

  def call(name, args:, job: FixtureJob, method: :perform_async, interval: nil, set: nil, again: nil, bulk_options: nil,
    key: "queue:default", more: {})
    @recorder.situation(name, key: key) do
      yield if block_given?
      given = {
        "set" => (set.merge(again.to_h) if set), "interval" => interval.is_a?(Time) ? interval.to_f : interval,
        "bulk_options" => bulk_options
      }
      input = {
        "ruby" => ruby_text(job, method, interval, [set, again], args, bulk_options), "now" => FrozenWorld.now,
        "job" => job.name, "options" => job.get_sidekiq_options.dup, "call" => method.to_s, "args" => args
      }.merge(given.compact)
      target = [set, again].compact.inject(job) { |receiver, options| receiver.set(options.dup) }
      attempt(input) { perform(target, method, interval, args, bulk_options) }
      input.merge(more)
    end
  end

  # Call; what was refused is noted in *input*.
  def attempt(input, &block)
    @recorder.step(&block)
  rescue ArgumentError, JSON::JSONError => error
    input["refused"] = error.class.name
  end

  def perform(target, method, interval, args, bulk_options)
    return target.perform_bulk(args, **bulk_options.to_h) if method == :perform_bulk

    target.public_send(method, *[interval].compact, *args)
  end

  def push(name, item, bulk: false, key: "queue:default", more: {})
    method = bulk ? :push_bulk : :push
    @recorder.situation(name, key: key) do
      options = item["class"].is_a?(Class) ? {"options" => item["class"].get_sidekiq_options.dup} : {}
      input = {"ruby" => "Sidekiq::Client.#{method}(#{item.inspect})", "now" => FrozenWorld.now, "call" => method.to_s,
               "item" => item.dup}.merge(options)
      attempt(input) { Sidekiq::Client.public_send(method, item.dup) }
      input.merge(more)
    end
  end

  def ruby_text(job, method, interval, sets, args, bulk_options)
    given = method == :perform_bulk ? args.inspect : [*interval, *args].map(&:inspect).join(", ")
    given += ", #{bulk_options.inspect[1..-2]}" if bulk_options
    set = sets.compact.map { |options| ".set(#{options.inspect[1..-2]})" }.join
    "#{job.name}#{set}.#{method}(#{given})"
  end
end
