# frozen_string_literal: true

# Puts every key of a Sidekiq up to 6.5 under the namespace that SIDEKIQ_NAMESPACE holds, by the redis-namespace gem.
# Loaded before all else: RUBYOPT="-r ruby_fixtures/namespace.rb".

require "sidekiq"
require "redis-namespace"

# The size is a worker's, whose own would be set only once it is known that this is one.
Sidekiq.redis = {url: ENV.fetch("REDIS_URL"), namespace: ENV.fetch("SIDEKIQ_NAMESPACE"), size: 30}
