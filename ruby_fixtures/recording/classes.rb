# frozen_string_literal: true

require_relative "../jobs"
require_relative "engine"

# Jobs that only the recording needs: an option or a block each.

class DisplayedJob < FixtureJob
  sidekiq_options display_class: "Shown::Name", log_level: "debug"
end

class SymbolQueueJob < FixtureJob
  sidekiq_options queue: :critical, retry: 3
end

class RetryForJob < FixtureJob
  sidekiq_options retry_for: 3600
end

class RetryForWithCountJob < FixtureJob
  sidekiq_options retry: 1, retry_for: 3600
end

# Answers with what the second argument says, in Ruby: a number, nil, :kill, :discard.
class AnsweringRetryInJob < FixtureJob
  ANSWERS = {"kill" => :kill, "discard" => :discard, "default" => :default, "text" => "90", "float" => 90.75, "zero" => 0,
             "negative" => -5, "nil" => nil}.freeze
  class << self
    attr_accessor :answer
  end
  sidekiq_retry_in { |_count, _error| answer == "raises" ? raise("no delay") : ANSWERS.fetch(answer) }
end

class DiscardedWhenExhaustedJob < FixtureJob
  sidekiq_options retry: 0
  sidekiq_retries_exhausted { |_job, _error| :discard }
end

class RaisesWhenExhaustedJob < FixtureJob
  sidekiq_options retry: 0
  sidekiq_retries_exhausted { |_job, _error| raise "nobody listens" }
end

# What stands in `wrapped` has the word, not the wrapper (7.1.3).
class WrappedRetryInJob < FixtureJob
  sidekiq_retry_in { |_count, _error| 500 }
end
