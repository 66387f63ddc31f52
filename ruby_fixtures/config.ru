# frozen_string_literal: true

# Sidekiq's Web UI for a browser: REDIS_URL=redis://… puma --bind tcp://127.0.0.1:9292 ruby_fixtures/config.ru

require_relative "jobs"
require_relative "web_ui"
# Gems with tabs of their own.
ENV.fetch("FIXTURE_TABS", "").split.each { |name| require name }

run WebUi.app
