# frozen_string_literal: true

# Stands in for the gem chronic_duration, which sidekiq-status asks for a duration in words to show on its page.
module ChronicDuration
  def self.output(seconds, *)
    "#{seconds} secs"
  end
end
