# frozen_string_literal: true

require_relative "engine"
require_relative "../active_jobs"

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
    current_attributes
    locale
  end

  private

  def options
    enqueue "active_job_set_wait", "EchoJob.set(wait: 60).perform_later(1)", key: "schedule"
    enqueue "active_job_set_wait_until", "EchoJob.set(wait_until: Time.at(1_700_003_600.5)).perform_later(1)", key: "schedule"
    enqueue "active_job_set_queue_and_priority", "EchoJob.set(queue: :low, priority: 5).perform_later(1)", key: "queue:low"
    enqueue "active_job_sidekiq_options", "EchoOptionsJob.perform_later(1)", key: "queue:mailers"
  end

  # `retry_on` puts a new job with the old job_id into `schedule`; Sidekiq sees a success.
  def retried_by_active_job
    @recorder.situation("active_job_retry_on", key: "schedule") do
      ActiveRetryJob.perform_later("boom")
      FrozenWorld.advance(1.5)
      Engine.run_next("default").to_h
    end
  end

  def current_attributes
    require "sidekiq/middleware/current_attributes"
    Sidekiq::CurrentAttributes.persist(FixtureCurrent)
    @recorder.situation("current_attributes", key: "queue:default") do
      FixtureCurrent.set(user_id: 7, tenant: "acme") { FixtureJob.perform_async("ok") }
      {"ruby" => 'FixtureCurrent.set(user_id: 7, tenant: "acme") { FixtureJob.perform_async("ok") }',
       "now" => FrozenWorld.now, "middleware_adds" => {"cattr" => {"user_id" => 7, "tenant" => "acme"}}}
    end
  ensure
    Sidekiq.client_middleware.clear
  end

  def locale
    require "sidekiq/middleware/i18n"
    Sidekiq.client_middleware.add(Sidekiq::Middleware::I18n::Client)
    @recorder.situation("i18n_locale", key: "queue:default") do
      I18n.with_locale(:de) { FixtureJob.perform_async("ok") }
      {"ruby" => 'I18n.with_locale(:de) { FixtureJob.perform_async("ok") }', "now" => FrozenWorld.now,
       "middleware_adds" => {"locale" => "de"}}
    end
  ensure
    Sidekiq.client_middleware.clear
  end

  def enqueue(name, ruby, key: "queue:default")
    @recorder.situation(name, key: key) do
      input = {"ruby" => ruby, "now" => FrozenWorld.now, "active_job" => ActiveJob.gem_version.to_s}
      begin
        eval(ruby, TOPLEVEL_BINDING) # rubocop:disable Security/Eval -- the text is from the table above
      rescue ActiveJob::SerializationError => refused
        input["refused"] = refused.message
      end
      input
    end
  end
end
