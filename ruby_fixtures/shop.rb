# frozen_string_literal: true

# Ruby's half of the shop in the pictures of docs/images; `interop_tests/support/shop_jobs.py` is the other one.

require "sidekiq"

class SendReceipt
  include Sidekiq.const_get(Sidekiq.const_defined?(:Job) ? :Job : :Worker)
  sidekiq_options queue: "mailers"

  def perform(_order, _address)
    sleep(0.05) until Sidekiq.redis { |conn| conn.get("shop:closed") }
  end
end
