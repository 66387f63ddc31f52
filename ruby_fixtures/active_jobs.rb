# frozen_string_literal: true

# Active Job's side of the fixtures: a job that echoes its arguments, one that retries by Active Job's own rules, and a record
# that travels as a GlobalID.

require_relative "jobs"
require "active_job"
require "active_support"
require "active_support/time"
require "active_support/current_attributes"
# Loaded in every Rails app; what Rails 6 sends of a BigDecimal depends on it.
require "active_support/core_ext/big_decimal/conversions"
require "bigdecimal"
require "globalid"

ActiveJob::Base.queue_adapter = :sidekiq
ActiveJob::Base.logger = nil
# As Sidekiq's Rails engine does when Active Job is loaded.
ActiveJob::Base.include(FIXTURE_JOB::Options) unless ActiveJob::Base.respond_to?(:sidekiq_options)

GlobalID.app = "fixtures"
I18n.available_locales = %i[en de]

# A record of no database: its name is made of its id.
class FixtureRecord
  include GlobalID::Identification

  attr_reader :id

  def self.find(id)
    new(id)
  end

  def initialize(id)
    @id = id
  end

  def ==(other)
    other.is_a?(FixtureRecord) && other.id.to_s == id.to_s
  end

  def inspect
    "#<FixtureRecord #{id}>"
  end
end

# Writes what arrived, as `inspect` shows it, to the list `fixture:echo`.
class EchoJob < ActiveJob::Base
  def perform(*arguments, **named)
    shown = arguments.map(&:inspect) + named.map { |name, value| "#{name}: #{value.inspect}" }
    Sidekiq.redis { |conn| conn.rpush("fixture:echo", shown.join(", ")) }
  end
end

# Writes what arrived as JSON that tells apart whatever Ruby tells apart, to the hash *key*.
class ExactEchoJob < ActiveJob::Base
  def perform(key, name, *arguments, **named)
    text = JSON.generate([exact(arguments), exact(named)])
    Sidekiq.redis { |conn| conn.hset(key, name, text) }
  end

  private

  def exact(value)
    [value.class.name, parts(value)]
  end

  def parts(value)
    case value
    when Hash then value.map { |key, item| [exact(key), exact(item)] }
    when Array then value.map { |item| exact(item) }
    when ActiveSupport::Duration then [value.value, value.parts.to_a]
    when ActiveSupport::TimeWithZone then [value.iso8601(9), value.time_zone.name]
    when Time, DateTime then value.iso8601(9)
    else value.inspect
    end
  end
end

# Writes what Active Job tells a run about itself, to the list `fixture:facts`.
class FactsJob < ActiveJob::Base
  def perform(note)
    facts = {
      "by" => "ruby", "note" => note, "jid" => provider_job_id, "job_id" => job_id, "queue" => queue_name,
      "priority" => priority, "executions" => executions, "locale" => I18n.locale.to_s, "timezone" => Time.zone&.name,
      "job_timezone" => timezone
    }
    Sidekiq.redis { |conn| conn.rpush("fixture:facts", JSON.generate(facts)) }
  end
end

class EchoOptionsJob < EchoJob
  queue_as :mailers
  sidekiq_options retry: 3, backtrace: true
end

class ActiveRetryJob < ActiveJob::Base
  # Rails 6.0 has no jitter to turn off.
  exactly = (ActiveJob.version < Gem::Version.new("6.1")) ? {} : {jitter: 0}
  retry_on FixtureError, wait: 30, attempts: 3, **exactly

  def perform(message)
    raise FixtureError, message
  end
end

class ActiveRetryInJob < ActiveJob::Base
  sidekiq_retry_in { |count, _error| (count + 1) * 100_000 }

  def perform(message)
    raise FixtureError, message
  end
end

# What a web request knows and its jobs should know too.
class FixtureCurrent < ActiveSupport::CurrentAttributes
  attribute :user_id, :tenant
end

class FixtureSubject < ActiveSupport::CurrentAttributes
  attribute :record, :kind, :since
end

# FIXTURE_CONTEXT: both go along with every job, as far as the release can, and the locale does.
if ENV["FIXTURE_CONTEXT"]
  require "sidekiq/middleware/i18n"
  version = Gem::Version.new(Sidekiq::VERSION)
  if version >= Gem::Version.new("6.3")
    require "sidekiq/middleware/current_attributes"
    takes_several = version >= Gem::Version.new("7.1.1")
    Sidekiq::CurrentAttributes.persist(takes_several ? %w[FixtureCurrent FixtureSubject] : FixtureCurrent)
  end
end

# Writes what it knows of the request to the list `fixture:context`, and enqueues another job that does.
class ContextJob
  include FIXTURE_JOB

  def perform(note, next_class = nil, next_queue = nil)
    known = [FixtureCurrent.user_id, FixtureCurrent.tenant, *FixtureSubject.attributes.values_at(:record, :kind, :since)]
    line = {"by" => "ruby", "note" => note, "locale" => I18n.locale.to_s, "known" => known.map(&:inspect)}
    Sidekiq.redis { |conn| conn.rpush("fixture:context", JSON.generate(line)) }
    Sidekiq::Client.push("class" => next_class, "queue" => next_queue, "args" => [note]) if next_class
  end
end

# Implemented in Python; Ruby only enqueues them.
class PythonActiveJob < ActiveJob::Base
  queue_as :python

  def perform(*)
    raise NotImplementedError, "#{self.class} is performed by Python"
  end
end

class PythonFactsJob < PythonActiveJob
end
