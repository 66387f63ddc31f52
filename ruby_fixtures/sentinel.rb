# frozen_string_literal: true

# A Sidekiq that works on the primary which a sentinel names. FIXTURE_SENTINEL is where the sentinel listens (host:port);
# its service is called `jobs`. What runs is noted in the file FIXTURE_LEDGER, as a Redis that fails over may forget.

require_relative "ledger_jobs"

host, port = ENV.fetch("FIXTURE_SENTINEL").split(":")
settings = {sentinels: [{host: host, port: port.to_i}], role: :master}
# The redis gem takes the service for a host, redis-client has a word for it.
settings[(Sidekiq::VERSION.to_i < 7) ? :url : :name] = (Sidekiq::VERSION.to_i < 7) ? "redis://jobs" : "jobs"
Sidekiq.configure_server { |config| config.redis = settings }
Sidekiq.configure_client { |config| config.redis = settings }
