# frozen_string_literal: true

# Jobs and callbacks for tests of batches that cross the border. `SIDEKIQ_PY_SUPPORT` names the support file.

require_relative "active_jobs" if ENV["FIXTURE_ACTIVE_JOB"]
require_relative "jobs"
require ENV.fetch("SIDEKIQ_PY_SUPPORT")

if defined?(ActiveJob)
  # The options of many an ApplicationJob, and bad input.
  class RefusingActiveJob < ActiveJob::Base
    retry_on StandardError, wait: 600, attempts: 3

    def perform(message)
      raise SidekiqPy::JobFailed, message
    end
  end

  class RefusingDiscardedActiveJob < ActiveJob::Base
    discard_on StandardError

    def perform(message)
      raise SidekiqPy::JobFailed, message
    end
  end
end

# Does what its first argument says, or what the key of that name in Redis says now.
class BatchDeed < FixtureJob
  sidekiq_options queue: "ruby", retry: 2
  sidekiq_retry_in { |_count, _error| 1 }

  def do_add(name, *rest)
    SidekiqPy::Batch.current.jobs { BatchDeed.perform_async(name, *rest) }
  end

  def do_fail_while(key)
    raise FixtureError, "no e-mail" if Sidekiq.redis { |conn| conn.get(key) }
  end

  def do_refuse(message)
    raise SidekiqPy::JobFailed, message
  end

  def do_note_validity(list)
    do_echo(list, SidekiqPy::Batch.current.valid?)
  end
end

# Kills its process when it has failed, and before Sidekiq writes its retry.
class BatchKilledBeforeItsRetry < BatchDeed
  sidekiq_retry_in do |_count, _error|
    Process.kill(:KILL, Process.pid)
    sleep
  end
end

# Waits for its retry as long as a test takes.
class BatchFailing < BatchDeed
  sidekiq_retry_in { |_count, _error| 600 }
end

class BatchFragile < BatchDeed
  sidekiq_options retry: 0
end

class BatchDropped < BatchDeed
  sidekiq_options retry: false
end

class BatchDiscarded < BatchDeed
  sidekiq_retry_in { :discard }
end

# A plain class that is called back.
class BatchDone
  %w[complete success death].each do |event|
    define_method("on_#{event}") { |status, options| note(event, status, options) }
  end

  private

  def note(event, status, options)
    line = JSON.generate([event, status.bid, options, status.total, status.pending])
    Sidekiq.redis { |conn| conn.rpush("callbacks", line) }
  end
end

if ENV["FIXTURE_BAD_HANDLER"]
  Sidekiq.configure_server do |config|
    config.death_handlers << ->(_job, _error) { raise FixtureError, "the handler" }
    config.death_handlers << ->(job, _error) { Sidekiq.redis { |conn| conn.lpush("died", job["jid"]) } }
  end
end
