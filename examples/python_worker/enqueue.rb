# frozen_string_literal: true

# The Ruby side: classes without a `perform`, because Python has it.
#
#     ruby enqueue.rb

require "sidekiq"

class FraudCheck
  include Sidekiq::Job
  sidekiq_options queue: "python", retry: 3
end

class FetchRate
  include Sidekiq::Job
  sidekiq_options queue: "python"
end

puts FraudCheck.perform_async("A-1001", 99.5)
puts FraudCheck.perform_async("A-1002", 12_000.0) # fails at first, and is retried
puts FraudCheck.perform_in(1, "A-1003", 7.25)
puts FetchRate.perform_async("EUR")
