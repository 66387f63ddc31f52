# frozen_string_literal: true

# Sidekiq's Web UI for a browser: REDIS_URL=redis://… puma --bind tcp://127.0.0.1:9292 ruby_fixtures/config.ru

require_relative "jobs"
require_relative "web_ui"

run WebUi.app
