# frozen_string_literal: true

# The Ruby side, as it stands in any Rails application under app/jobs. To run it by itself:
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
