# frozen_string_literal: true

# sidekiq-cron's jobs (Debian: ruby-sidekiq-cron), for Sidekiq 6. A test says which moment has come: `tick("2030-01-01 00:00 UTC")`.

require_relative "jobs"
require "time"
require "sidekiq-cron"

# Save a periodic job, as an initializer of a Rails application does.
def periodic(**options)
  job = Sidekiq::Cron::Job.new(options)
  job.save || raise(job.errors.join(", "))
end

# Do what sidekiq-cron's poller does when it looks at this moment.
def tick(moment)
  Sidekiq::Cron::Job.all.each { |job| job.test_and_enque_for_time!(Time.parse(moment).utc) }
  nil
end
