# frozen_string_literal: true

# The gem sidekiq-status, of which a public release is on the load path: classes whose jobs Ruby or Python runs.

require_relative "jobs"
# Release 4.0.0 does not load beside the Web UI of 7.3.2.
require_relative "web_ui" if Sidekiq::VERSION.to_i >= 8
require "sidekiq-status"

Sidekiq.configure_client { |config| Sidekiq::Status.configure_client_middleware(config) }
Sidekiq.configure_server do |config|
  Sidekiq::Status.configure_server_middleware(config)
  Sidekiq::Status.configure_client_middleware(config)
end

# Python runs it.
class PythonImport
  include FIXTURE_JOB
  include Sidekiq::Status::Worker
  sidekiq_options queue: "python"
end

class RubyImport
  include FIXTURE_JOB
  include Sidekiq::Status::Worker
  sidekiq_options queue: "ruby"

  def perform(rows)
    total(rows)
    at(rows / 2, "half of #{rows} rows")
    Sidekiq.redis { |conn| conn.blpop("gate", 30) }
    at(rows, "all rows")
  end
end
