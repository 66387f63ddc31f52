# frozen_string_literal: true

# Lets Ruby jobs be steps of a sidekiq_celery workflow. Copy this file into your application: in Rails to
# config/initializers/sidekiq_celery_steps.rb, elsewhere to a file that `sidekiq -r` loads. It adds itself to Sidekiq's
# server; there is nothing else to configure. It works with Sidekiq 6 to 8 and does not affect other jobs.
#
# A step's payload carries `celery.report`. When the step has succeeded, or has failed for good, one MULTI writes its
# result in the format that Celery's clients read and, if anything waits for it, enqueues the job with which a Python
# worker continues: the next step, the chord, callbacks. The return value of `perform` is the result.

require "securerandom"
require "time"

module SidekiqCelery
  class Steps
    GOES_ON ||= %w[flow chain chord callbacks errbacks].freeze

    def call(job, payload, _queue)
      result = yield
      # What an iterable job returns is how many keys Redis has deleted.
      SidekiqCelery.succeeded(payload, job.respond_to?(:build_enumerator) ? nil : result)
      result
    end
  end

  # Until 8.0.7 Sidekiq calls no death handler for a job that is discarded. It then returns nil, and otherwise what it has written.
  module Discarded
    private

    def process_retry(_job, payload, _queue, error)
      super.tap { |written| SidekiqCelery.died(payload, error) if written.nil? }
    end
  end

  class << self
    # A result that is not JSON, such as NaN, fails the workflow at once: a retry would do the job's work once more, and fail again.
    def succeeded(payload, result)
      report(payload, "SUCCESS", result)
    rescue JSON::JSONError, EncodingError => error
      died(payload, TypeError.new("what #{payload["class"]} returned is not JSON: #{readable(error.message)}"))
      Sidekiq.logger.error("The workflow of #{payload["jid"]} failed: what #{payload["class"]} returned is not JSON")
    end

    def died(payload, error)
      failure = {"exc_type" => error.class.name, "exc_message" => [readable(error.message)], "exc_module" => nil}
      report(payload, "FAILURE", failure, readable((error.backtrace || []).join("\n")))
    end

    def report(payload, state, result, traceback = nil)
      marks = payload["celery"]
      # A program may use that key for something of its own.
      wanted = marks["report"] if marks.is_a?(Hash)
      return unless wanted.is_a?(Hash) && wanted["class"]

      # Whoever may push could overwrite any key with a result. Without a key, Python stores the result.
      wanted.delete("key") unless wanted["key"].to_s.end_with?("celery-task-meta-#{payload["jid"]}")
      meta = Sidekiq.dump_json(
        "status" => state, "result" => result, "traceback" => traceback, "children" => [],
        "date_done" => Time.now.utc.iso8601(6), "task_id" => payload["jid"]
      )
      following = successor(payload, marks, wanted, state, result) if (marks.keys & Steps::GOES_ON).any? || !wanted["key"]
      is_member = following && defined?(SidekiqPy::Batches) && SidekiqPy::Batches.membership?(payload)
      Sidekiq.redis do |conn|
        conn.multi do |transaction|
          store(transaction, wanted, meta) if wanted["key"]
          push(transaction, following) if following && !is_member
        end
      end
      add_to_batch(payload, following) if is_member
    end

    private

    # JSON takes no other bytes, and the workflow would wait for a step that cannot be reported.
    def readable(text)
      text.to_s.dup.force_encoding("UTF-8").scrub("?")
    end

    def store(transaction, wanted, meta)
      transaction.set(wanted["key"], meta, **(wanted["expires"] ? {ex: wanted["expires"]} : {}))
      transaction.publish(wanted["key"], meta)
    end

    def push(conn, job)
      conn.sadd("queues", [job["queue"]])
      conn.lpush("queue:#{job["queue"]}", Sidekiq.dump_json(job))
    end

    # The batch of a step waits for what follows the step. It no longer does if it is gone, or if the step runs once more after it
    # has succeeded.
    def add_to_batch(payload, job)
      batch = SidekiqPy::Batch.new(payload[SidekiqPy::Batches::KEY].first)
      batch.jobs { Sidekiq::Client.new.send(:raw_push, [job]) }
    rescue SidekiqPy::Batch::Error
      Sidekiq.redis { |conn| push(conn, job) }
    end

    def successor(payload, marks, wanted, state, result)
      # Sidekiq 8 uses milliseconds.
      now = payload["created_at"].is_a?(Integer) ? (Time.now.to_f * 1000).to_i : Time.now.to_f
      {
        "class" => wanted["class"], "queue" => wanted["queue"], "jid" => SecureRandom.uuid, "retry" => true,
        "args" => [payload["class"], payload["jid"], marks, state, result], "created_at" => now, "enqueued_at" => now,
        "celery" => {"parent_id" => payload["jid"], "root_id" => marks["root_id"] || payload["jid"]}
      }
    end
  end
end

Sidekiq.configure_server do |config|
  require "sidekiq/job_retry"
  Sidekiq::JobRetry.prepend(SidekiqCelery::Discarded)
  # Last of all, and so next to `perform`: middleware such as that of the gem sidekiq-status returns nil for other jobs than its own.
  # A capsule's chain may be a copy from before.
  config.on(:startup) do
    capsules = config.respond_to?(:capsules) ? config.capsules.values : []
    [config, *capsules].each { |part| part.server_middleware { |chain| chain.add SidekiqCelery::Steps } }
  end
end
# Web processes need it too: "Kill" in the Web UI calls death handlers there. `sidekiq-py ruby-support` prints this code as well,
# so a program may load it twice, also that of an earlier release.
(Sidekiq.respond_to?(:default_configuration) ? Sidekiq.default_configuration : Sidekiq).death_handlers.tap do |handlers|
  is_loaded = handlers.any? { |handler| handler.is_a?(Method) && handler.receiver == SidekiqCelery }
  handlers << SidekiqCelery.method(:died) unless is_loaded
end
