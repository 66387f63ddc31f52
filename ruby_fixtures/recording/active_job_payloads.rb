# frozen_string_literal: true

require_relative "engine"
require_relative "../active_jobs"
# Loaded in every Rails application; how a BigDecimal is spelled depends on it.
require "active_support/core_ext/big_decimal/conversions"

class EchoRaiseJob < ActiveJob::Base
  def perform(*)
    raise FixtureError, "boom"
  end
end

class EchoNeverAgainJob < EchoRaiseJob
  sidekiq_options retry: 0
end

class ActiveDiscardJob < EchoRaiseJob
  discard_on FixtureError
end

class ActiveRetryOnceJob < EchoRaiseJob
  retry_on FixtureError, wait: 30, attempts: 1
end

class OtherCurrent < ActiveSupport::CurrentAttributes
  attribute :trace
end

# What Active Job's own Sidekiq adapter writes: each type of argument, each option, its own retries, and the keys that
# Sidekiq's middleware adds in a Rails application.
class ActiveJobPayloads
  # Ruby expressions, so that each file shows how its value is made.
  ARGUMENTS = {
    "nothing" => "",
    "json_types" => '1, -2.5, "text", nil, true, false, 10**30',
    "array" => "[1, [2, :three]]",
    "symbol" => ":a_symbol",
    "date" => "Date.new(2024, 2, 29)",
    "time" => "Time.new(2024, 2, 29, 13, 5, Rational(9_123456789, 1_000_000_000), '+02:00')",
    "date_time" => "DateTime.new(2024, 2, 29, 13, 5, Rational(9_123456789, 1_000_000_000), '+02:00')",
    "time_with_zone" => "ActiveSupport::TimeZone['Europe/Berlin'].local(2024, 2, 29, 13, 5, 9.5r)",
    "duration" => "2.days + 3.hours",
    "duration_of_months" => "1.month",
    "module" => "Billing",
    "class" => "Billing::InvoiceJob",
    "big_decimal" => 'BigDecimal("12.340")',
    "global_id" => "FixtureRecord.new(42)",
    "global_id_with_special_characters" => 'FixtureRecord.new("a b/c?d")',
    "hash_with_string_keys" => '{"b" => 1, "a" => {"c" => :d}}',
    "hash_with_symbol_keys" => "[{b: 1, a: {c: :d}}]",
    "hash_with_mixed_keys" => '[{"text" => 1, symbol: 2}]',
    "hash_with_indifferent_access" => '[ActiveSupport::HashWithIndifferentAccess.new(b: 1, "a" => {c: 2})]',
    "keyword_arguments" => '1, name: "value", list: [1, :two]',
    "range" => "1..5",
    "object_of_no_known_type" => "Object.new"
  }.freeze

  # A value as any language can read it: JSON's own types stand for themselves, all others as an object whose `is` names the type.
  TOLD = lambda do |value|
    case value
    when BigDecimal then {"is" => "BigDecimal", "text" => value.to_s}
    # A duration says that it is a number.
    when ActiveSupport::Duration
      {"is" => "ActiveSupport::Duration", "seconds" => value.value, "parts" => value.parts.to_h.transform_keys(&:to_s)}
    when nil, true, false, Numeric, String then value
    when Symbol, Module then {"is" => value.class.name, "text" => value.to_s}
    when Array then value.map(&TOLD)
    when Hash then {"is" => value.class.name, "pairs" => value.map { |pair| pair.map(&TOLD) }}
    when Range then {"is" => "Range", "begin" => TOLD.call(value.begin), "end" => TOLD.call(value.end), "exclude_end" => value.exclude_end?}
    when ActiveSupport::TimeWithZone
      {"is" => "ActiveSupport::TimeWithZone", "text" => value.iso8601(9), "zone" => value.time_zone.name}
    when Time, DateTime then {"is" => value.class.name, "text" => value.iso8601(9)}
    when Date then {"is" => "Date", "text" => value.iso8601}
    when GlobalID::Identification then {"is" => "GlobalID", "text" => value.to_global_id.to_s}
    else {"is" => value.class.name}
    end
  end

  def initialize(recorder)
    @recorder = recorder
  end

  def record
    ARGUMENTS.each do |name, text|
      args = eval("[#{text}]", TOPLEVEL_BINDING) # rubocop:disable Security/Eval -- the text is from the table above
      enqueue("active_job_argument_#{name}", "EchoJob.perform_later(#{text})", args: told_list(args, keywords: name == "keyword_arguments"))
    end
    options
    retried_by_active_job
    failures
    all_at_once if ActiveJob.respond_to?(:perform_all_later)
    current_attributes if Engine.since?("6.3")
    several_current_attributes if Engine.since?("7.1.1")
    locale
  end

  private

  def options
    scheduled "wait", "wait: 60", {"wait" => 60}
    scheduled "wait_until", "wait_until: Time.at(1_700_003_600.5)", {"wait_until" => 1_700_003_600.5}
    scheduled "wait_duration", "wait: 1.5.hours", {"wait" => 5400}
    scheduled "wait_until_with_zone", "wait_until: ActiveSupport::TimeZone['Europe/Berlin'].at(1_700_003_600)",
      {"wait_until" => 1_700_003_600}
    enqueue "active_job_locale_and_time_zone",
      "I18n.with_locale(:de) { Time.use_zone('Europe/Berlin') { EchoJob.perform_later(1) } }",
      args: [1], more: {"locale" => "de", "time_zone" => "Europe/Berlin"}
    enqueue "active_job_set_queue_and_priority", "EchoJob.set(queue: :low, priority: 5).perform_later(1)", key: "queue:low",
      args: [1], more: {"set" => {"queue" => "low", "priority" => 5}}
    enqueue "active_job_sidekiq_options", "EchoOptionsJob.perform_later(1)", key: "queue:mailers", job: EchoOptionsJob, args: [1]
  end

  def scheduled(name, ruby, set)
    enqueue "active_job_set_#{name}", "EchoJob.set(#{ruby}).perform_later(1)", key: "schedule", args: [1], more: {"set" => set}
  end

  # `retry_on` puts a new job with the old job_id into `schedule`; Sidekiq sees a success.
  def retried_by_active_job
    @recorder.situation("active_job_retry_on", key: "schedule") do
      ActiveRetryJob.perform_later("boom")
      FrozenWorld.advance(1.5)
      @recorder.step { Engine.run_next("default") }.to_h
    end
  end

  # What Sidekiq itself does with an Active Job that raises: its own retry, with the class that was wrapped.
  def failures
    failed("active_job_first_failure", "EchoRaiseJob.perform_later", key: "retry")
    failed("active_job_discard_on", "ActiveDiscardJob.perform_later", key: "retry")
    failed("active_job_retry_on_is_over", "ActiveRetryOnceJob.perform_later", key: "retry")
    failed("active_job_exhausted", "EchoNeverAgainJob.perform_later", key: "dead")
  end

  def failed(name, ruby, key:)
    @recorder.situation(name, key: key) do
      eval(ruby, TOPLEVEL_BINDING) # rubocop:disable Security/Eval -- as above
      FrozenWorld.advance(1.5)
      @recorder.step { Engine.run_next("default") }.to_h.merge("ruby" => ruby, "active_job" => ActiveJob.gem_version.to_s)
    end
  end

  # Rails 7.1 and later: one push_bulk for all that wait for nothing.
  def all_at_once
    enqueue "active_job_perform_all_later", "ActiveJob.perform_all_later(EchoJob.new(1), EchoJob.new(2), EchoOptionsJob.new(3))",
      more: all_of([EchoJob, 1], [EchoJob, 2], [EchoOptionsJob, 3])
    enqueue "active_job_perform_all_later_with_wait",
      "ActiveJob.perform_all_later(EchoJob.new(1).set(wait: 60), EchoJob.new(2).set(wait: 120))", key: "schedule",
      more: all_of([EchoJob, 1, {"wait" => 60}], [EchoJob, 2, {"wait" => 120}])
    enqueue "active_job_perform_all_later_with_past_wait",
      "ActiveJob.perform_all_later(EchoJob.new(1).set(wait: -60))", key: "schedule",
      more: all_of([EchoJob, 1, {"wait" => -60}])
  end

  def all_of(*jobs)
    told = jobs.map { |job, argument, set| declared(job).merge({"args" => [argument], "set" => set}.compact) }
    {"call" => "perform_all_later", "jobs" => told}
  end

  def several_current_attributes
    require "sidekiq/middleware/current_attributes"
    Sidekiq::CurrentAttributes.persist([FixtureCurrent, OtherCurrent])
    @recorder.situation("current_attributes_of_two_classes", key: "queue:default") do
      ActiveSupport::CurrentAttributes.reset_all
      ruby = 'FixtureCurrent.set(user_id: 7) { OtherCurrent.set(trace: "t-1") { FixtureJob.perform_async("ok") } }'
      @recorder.step { FixtureCurrent.set(user_id: 7) { OtherCurrent.set(trace: "t-1") { FixtureJob.perform_async("ok") } } }
      {"ruby" => ruby, **fixture_call,
       "current" => {"cattr" => {"user_id" => 7}, "cattr_1" => {"trace" => "t-1"}}}
    end
    @recorder.situation("current_attributes_of_none", key: "queue:default") do
      ActiveSupport::CurrentAttributes.reset_all
      @recorder.step { FixtureJob.perform_async("ok") }
      {"ruby" => 'FixtureJob.perform_async("ok")', **fixture_call}
    end
  ensure
    forget_middleware
  end

  def forget_middleware
    Engine.settings.client_middleware.clear
    Engine.settings.server_middleware.clear
  end

  def current_attributes
    require "sidekiq/middleware/current_attributes"
    Sidekiq::CurrentAttributes.persist(FixtureCurrent)
    @recorder.situation("current_attributes", key: "queue:default") do
      ActiveSupport::CurrentAttributes.reset_all
      @recorder.step { FixtureCurrent.set(user_id: 7, tenant: "acme") { FixtureJob.perform_async("ok") } }
      {"ruby" => 'FixtureCurrent.set(user_id: 7, tenant: "acme") { FixtureJob.perform_async("ok") }',
       **fixture_call, "current" => {"cattr" => {"user_id" => 7, "tenant" => "acme"}}}
    end
  ensure
    forget_middleware
  end

  def locale
    require "sidekiq/middleware/i18n"
    Engine.settings.client_middleware.add(Sidekiq::Middleware::I18n::Client)
    @recorder.situation("i18n_locale", key: "queue:default") do
      @recorder.step { I18n.with_locale(:de) { FixtureJob.perform_async("ok") } }
      {"ruby" => 'I18n.with_locale(:de) { FixtureJob.perform_async("ok") }', **fixture_call,
       "middleware_adds" => {"locale" => "de"}}
    end
  ensure
    forget_middleware
  end

  # The call of Sidekiq's own that the middleware adds keys to.
  def fixture_call
    {"now" => FrozenWorld.now, "job" => "FixtureJob", "options" => FixtureJob.get_sidekiq_options.dup, "call" => "perform_async",
     "args" => ["ok"]}
  end

  def enqueue(name, ruby, key: "queue:default", job: EchoJob, args: nil, more: {})
    @recorder.situation(name, key: key) do
      input = {"ruby" => ruby, "now" => FrozenWorld.now, "active_job" => ActiveJob.gem_version.to_s}
      input.merge!(declared(job), "call" => "perform_later", "args" => args) if args
      input.merge!(more)
      begin
        # rubocop:disable Security/Eval -- the text is from the table above
        @recorder.step { eval(ruby, TOPLEVEL_BINDING) }
        # rubocop:enable Security/Eval
      rescue ActiveJob::SerializationError => refused
        input["refused"] = refused.message
      end
      input
    end
  end

  # A class, its queue and what it says of Sidekiq.
  def declared(job)
    options = job.respond_to?(:get_sidekiq_options) ? job.get_sidekiq_options.dup : {}
    queue = job.queue_name.respond_to?(:call) ? job.default_queue_name : job.queue_name
    {"job" => job.name, "queue_as" => queue.to_s, "options" => options}
  end

  def told_list(args, keywords:)
    told = args.map(&TOLD)
    keywords ? [*told[0..-2], told.last.merge("is" => "keywords")] : told
  end
end
