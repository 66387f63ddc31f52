# frozen_string_literal: true

require_relative "engine"

# What a client writes. Each input is a call that any language can make:
#
#   job, options  the class and its options, in their order (none for pushes by name)
#   set           what `.set(...)` is given, in order; absent without `.set`
#   call          perform_async, perform_in, perform_at, perform_bulk, push or push_bulk
#   interval      the first argument of perform_in and perform_at
#   args          the arguments (perform_bulk: one list a job)
#   item          what Client.push and Client.push_bulk are given
class Pushes
  EVERY_TYPE = [
    nil, true, false, 0, -1, 2**63, 2**64, -(10**30), 1.5, -0.0, "text", "", [], {}, [[1, [2]], {"a" => {"b" => nil}}]
  ].freeze
  FLOATS = [
    0.1, 100.0, 1e14, 1e15, 1e16, 123456789012345.6, 1234567890123456.0, 1234567890123456.7, 1e22, 1e23, 1e100, 0.0001,
    0.00001, 1e-7, 1e-9, 1e-10, 5e-324, 1.7976931348623157e308, -2.5e-8, 1700000000.123456
  ].freeze
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
    bulk
    with_middleware
  end

  private

  def immediate
    call "perform_async", args: ["ok", 1]
    call "perform_async_without_arguments", args: []
    call "perform_async_every_json_type", args: EVERY_TYPE
    call "perform_async_floats", args: FLOATS
    call "perform_async_texts", args: TEXTS
    call "perform_async_hash_argument", args: [{"b" => 1, "a" => {"10" => 2, "9" => [3]}}]
    call "perform_async_symbols_become_strings", args: [:ok, {key: :value}]
    call "perform_async_retry_false", job: RetryFalseJob, args: ["ok"]
    call "perform_async_retry_zero", job: RetryZeroJob, args: ["ok"]
    call "perform_async_retry_three", job: RetryThreeJob, args: ["ok"]
    call "perform_async_backtrace", job: BacktraceJob, args: ["ok"]
    call "perform_async_tags", job: TaggedJob, args: ["ok"]
    call "perform_async_dead_false", job: NeverDeadJob, args: ["ok"]
    call "perform_async_custom_queue", job: CriticalJob, args: ["ok"], key: "queue:critical"
    call "perform_async_many_options", job: ManyOptionsJob, args: ["ok"], key: "queue:critical"
    call "perform_async_namespaced_class", job: Billing::InvoiceJob, args: ["ok"]
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
  end

  def with_set
    call "set_queue", set: {queue: "low"}, args: ["ok"], key: "queue:low"
    call "set_retry_false", set: {retry: false}, args: ["ok"]
    call "set_new_keys", set: {tags: ["vip"], backtrace: 3, retry: 2}, args: ["ok"]
    over = {dead: true, queue: "low", extra: 1}
    call "set_over_class_options", job: ManyOptionsJob, set: over, args: ["ok"], key: "queue:low"
    call "set_perform_in", set: LOW_VIP, method: :perform_in, interval: 60, args: ["ok"], key: "schedule"
    call "set_wait", set: {wait: 60}, args: ["ok"], key: "schedule"
    call "set_wait_until", set: {wait_until: 1_700_003_600.5}, args: ["ok"], key: "schedule"
    call "set_jid", set: {jid: "chosen-by-the-caller"}, args: ["ok"]
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
    push "push_retry_in_the_item", {"retry" => 3, "args" => ["ok"], "class" => "FixtureJob"}
  end

  def bulk
    call "perform_bulk", method: :perform_bulk, args: THREE
    call "perform_bulk_many_options", job: ManyOptionsJob, method: :perform_bulk, args: TWO, key: "queue:critical"
    call "perform_bulk_at_list", set: {at: TWO_TIMES}, method: :perform_bulk, args: TWO, key: "schedule"
    call "perform_bulk_at_scalar", set: {at: TWO_TIMES.first}, method: :perform_bulk, args: TWO, key: "schedule"
    call "perform_bulk_nothing", method: :perform_bulk, args: []
    push "push_bulk", bulk_of(THREE), bulk: true
    push "push_bulk_at_list", bulk_of(TWO, "at" => TWO_TIMES), bulk: true, key: "schedule"
    push "push_bulk_at_scalar", bulk_of(TWO, "at" => TWO_TIMES.first), bulk: true, key: "schedule"
    push "push_bulk_options", bulk_of(TWO, "queue" => "low", "retry" => 2, "tags" => ["vip"]), bulk: true, key: "queue:low"
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
      call "middleware_perform_bulk", method: :perform_bulk, args: TWO, more: added
    end
  end

  def with_client_middleware(middleware)
    Sidekiq.client_middleware.add(middleware)
    yield
  ensure
    Sidekiq.client_middleware.remove(middleware)
  end

  def call(name, args:, job: FixtureJob, method: :perform_async, interval: nil, set: nil, key: "queue:default", more: {})
    @recorder.situation(name, key: key) do
      yield if block_given?
      input = {
        "ruby" => ruby_text(job, method, interval, set, args), "now" => FrozenWorld.now, "job" => job.name,
        "options" => job.get_sidekiq_options.dup, "call" => method.to_s, "args" => args
      }
      input["set"] = set.dup if set
      input["interval"] = interval if interval
      perform(job, method, interval, set, args)
      input.merge(more)
    end
  end

  def perform(job, method, interval, set, args)
    target = set ? job.set(set.dup) : job
    return target.perform_bulk(args) if method == :perform_bulk

    target.public_send(method, *[interval].compact, *args)
  end

  def push(name, item, bulk: false, key: "queue:default")
    method = bulk ? :push_bulk : :push
    @recorder.situation(name, key: key) do
      options = item["class"].is_a?(Class) ? {"options" => item["class"].get_sidekiq_options.dup} : {}
      input = {"ruby" => "Sidekiq::Client.#{method}(#{item.inspect})", "now" => FrozenWorld.now, "call" => method.to_s,
               "item" => item.dup, **options}
      Sidekiq::Client.public_send(method, item.dup)
      input
    end
  end

  def ruby_text(job, method, interval, set, args)
    given = method == :perform_bulk ? args.inspect : [*interval, *args].map(&:inspect).join(", ")
    "#{job.name}#{".set(#{set.inspect[1..-2]})" if set}.#{method}(#{given})"
  end
end
