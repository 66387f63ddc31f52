# frozen_string_literal: true

# The jobs of `jobs.rb` beside the gem sidekiq-batch, whose public source must be on the load path, and a callback.

require_relative "jobs"
require "sidekiq/batch"

# Notes that it was called.
class BatchNotes
  %w[complete success].each do |event|
    define_method("on_#{event}") do |status, options|
      Sidekiq.redis { |conn| conn.rpush("callbacks", JSON.generate([event, status.bid, options])) }
    end
  end
end

# Opens a batch whose callbacks go to a queue that only Ruby serves; its bid.
def open_batch(&jobs)
  batch = Sidekiq::Batch.new
  batch.callback_queue = "ruby"
  %w[complete success].each { |event| batch.on(event, "BatchNotes", "n" => 1) }
  batch.jobs(&jobs)
  batch.bid
end
