# frozen_string_literal: true

# The worker of tests of workflows that cross the border.

require_relative "jobs"
require_relative "../compat/sidekiq_celery/ruby/sidekiq_celery_steps"
load ENV["SIDEKIQ_PY_SUPPORT"] if ENV["SIDEKIQ_PY_SUPPORT"]

class StepDouble
  include FIXTURE_JOB
  sidekiq_options queue: "default"

  def perform(*numbers)
    numbers.flatten.sum * 2
  end
end

class StepFails
  include FIXTURE_JOB

  def perform(*)
    raise FixtureError, "no"
  end
end

class StepFailsWithBytes
  include FIXTURE_JOB

  def perform(*)
    raise FixtureError, "caf\xE9"
  end
end

class StepReturns
  include FIXTURE_JOB

  def perform(what)
    Sidekiq.redis { |conn| conn.incr("runs") }
    {"NaN" => Float::NAN, "bytes" => "caf\xE9", "binary" => "\xFF".b}.fetch(what)
  end
end

class StepIsDiscarded
  include FIXTURE_JOB
  sidekiq_retry_in { :discard }

  def perform(*)
    raise FixtureError, "no"
  end
end

class StepIsDiscardedInTheEnd
  include FIXTURE_JOB
  sidekiq_retries_exhausted { :discard }

  def perform(*)
    raise FixtureError, "no"
  end
end

if Sidekiq.const_defined?(:IterableJob)
  class StepIterates
    include Sidekiq::IterableJob

    def build_enumerator(count, cursor:)
      array_enumerator((1..count).to_a, cursor: cursor)
    end

    def each_iteration(*)
      Sidekiq.redis { |conn| conn.incr("runs") }
    end
  end
end

# As the middleware of the gem sidekiq-status, it does not return what the job returned.
class Silent
  def call(*)
    yield
    nil
  end
end

Sidekiq.configure_server { |config| config.server_middleware { |chain| chain.add Silent } } if ENV["FIXTURE_SILENT"]

if ENV["FIXTURE_CAPSULE"]
  Sidekiq.configure_server do |config|
    config.capsule("own") do |capsule|
      capsule.queues = ["own"]
      capsule.server_middleware { |chain| chain.add Silent }
    end
  end
end
