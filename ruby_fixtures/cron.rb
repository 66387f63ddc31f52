# frozen_string_literal: true

# sidekiq-cron's jobs: Debian's (ruby-sidekiq-cron) for Sidekiq 6, or a public release on the load path. A test says which moment has come: `tick("2030-01-01 00:00 UTC")`.

require_relative "jobs"
require "time"
require "sidekiq-cron"

# Tests of fleets ask for a quick poller of periodic jobs, too.
if (cron_poll_seconds = ENV["FIXTURE_CRON_POLL_SECONDS"])
  Sidekiq.configure_server do |config|
    settings = config.respond_to?(:[]=) ? config : Sidekiq.options
    settings[:cron_poll_interval] = cron_poll_seconds.to_i
    Sidekiq::Cron::Poller.prepend(Module.new { private def initial_wait; end })
  end
end

# Save a periodic job, as an initializer of a Rails application does.
def periodic(**options)
  job = Sidekiq::Cron::Job.new(options)
  job.save || raise(job.errors.join(", "))
end

# Do what sidekiq-cron's poller does when it looks at this moment.
def tick(moment)
  Sidekiq::Cron::Job.all.each do |job|
    test = job.respond_to?(:test_and_enqueue_for_time!) ? :test_and_enqueue_for_time! : :test_and_enque_for_time!
    job.public_send(test, Time.parse(moment).utc)
  end
  nil
end
