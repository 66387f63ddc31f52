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

  def initialize(recorder)
    @recorder = recorder
  end

  def record
    ARGUMENTS.each { |name, text| enqueue("active_job_argument_#{name}", "EchoJob.perform_later(#{text})") }
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
    enqueue "active_job_set_wait", "EchoJob.set(wait: 60).perform_later(1)", key: "schedule"
    enqueue "active_job_set_wait_until", "EchoJob.set(wait_until: Time.at(1_700_003_600.5)).perform_later(1)", key: "schedule"
    enqueue "active_job_set_wait_duration", "EchoJob.set(wait: 1.5.hours).perform_later(1)", key: "schedule"
    enqueue "active_job_set_wait_until_with_zone",
      "EchoJob.set(wait_until: ActiveSupport::TimeZone['Europe/Berlin'].at(1_700_003_600)).perform_later(1)", key: "schedule"
    enqueue "active_job_locale_and_time_zone",
      "I18n.with_locale(:de) { Time.use_zone('Europe/Berlin') { EchoJob.perform_later(1) } }"
    enqueue "active_job_set_queue_and_priority", "EchoJob.set(queue: :low, priority: 5).perform_later(1)", key: "queue:low"
    enqueue "active_job_sidekiq_options", "EchoOptionsJob.perform_later(1)", key: "queue:mailers"
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
    enqueue "active_job_perform_all_later", "ActiveJob.perform_all_later(EchoJob.new(1), EchoJob.new(2), EchoOptionsJob.new(3))"
    enqueue "active_job_perform_all_later_with_wait",
      "ActiveJob.perform_all_later(EchoJob.new(1).set(wait: 60), EchoJob.new(2).set(wait: 120))", key: "schedule"
  end

  def several_current_attributes
    require "sidekiq/middleware/current_attributes"
    Sidekiq::CurrentAttributes.persist([FixtureCurrent, OtherCurrent])
    @recorder.situation("current_attributes_of_two_classes", key: "queue:default") do
      ActiveSupport::CurrentAttributes.reset_all
      ruby = 'FixtureCurrent.set(user_id: 7) { OtherCurrent.set(trace: "t-1") { FixtureJob.perform_async("ok") } }'
      @recorder.step { FixtureCurrent.set(user_id: 7) { OtherCurrent.set(trace: "t-1") { FixtureJob.perform_async("ok") } } }
      {"ruby" => ruby, "now" => FrozenWorld.now,
       "middleware_adds" => {"cattr" => {"user_id" => 7}, "cattr_1" => {"trace" => "t-1"}}}
    end
    @recorder.situation("current_attributes_of_none", key: "queue:default") do
      ActiveSupport::CurrentAttributes.reset_all
      @recorder.step { FixtureJob.perform_async("ok") }
      {"ruby" => 'FixtureJob.perform_async("ok")', "now" => FrozenWorld.now}
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
       "now" => FrozenWorld.now, "middleware_adds" => {"cattr" => {"user_id" => 7, "tenant" => "acme"}}}
    end
  ensure
    forget_middleware
  end

  def locale
    require "sidekiq/middleware/i18n"
    Engine.settings.client_middleware.add(Sidekiq::Middleware::I18n::Client)
    @recorder.situation("i18n_locale", key: "queue:default") do
      @recorder.step { I18n.with_locale(:de) { FixtureJob.perform_async("ok") } }
      {"ruby" => 'I18n.with_locale(:de) { FixtureJob.perform_async("ok") }', "now" => FrozenWorld.now,
       "middleware_adds" => {"locale" => "de"}}
    end
  ensure
    forget_middleware
  end

  def enqueue(name, ruby, key: "queue:default")
    @recorder.situation(name, key: key) do
      input = {"ruby" => ruby, "now" => FrozenWorld.now, "active_job" => ActiveJob.gem_version.to_s}
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
end
