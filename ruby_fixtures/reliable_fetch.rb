# frozen_string_literal: true

# A Ruby worker that fetches with GitLab's reliable fetcher (Debian: ruby-gitlab-sidekiq-fetcher), for Sidekiq 6.
# It holds a job in `working:queue:<name>:<identity>` while it runs.

require_relative "jobs"
require "sidekiq-reliable-fetch"

Sidekiq.configure_server do |config|
  # 6.0 and 6.4 hand in the module, whose `options` the fetcher reads.
  Sidekiq::ReliableFetch.setup_reliable_fetch!(config)
end
