# frozen_string_literal: true

# The Ruby side, as you would write it in app/jobs of a Rails application. To run it on its own:
#
#     sidekiq -r ./jobs.rb -q mailers

require "sidekiq"

class SendReceipt
  include Sidekiq::Job
  sidekiq_options queue: "mailers", retry: 5

  def perform(order, email)
    logger.info { "receipt for #{order} sent to #{email}" }
  end
end
