# frozen_string_literal: true

require "sidekiq"

class Receipt
  include Sidekiq::Job
  sidekiq_options queue: "ruby"

  def perform(order, cents)
    Sidekiq.logger.info("receipt for order #{order}: #{cents} cents")
  end
end
