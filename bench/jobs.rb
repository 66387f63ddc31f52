# The jobs that are measured, for the real Sidekiq.
require "sidekiq"

Sidekiq.logger.level = Logger::WARN unless ENV["BENCH_LOG"]

class NoOp
  include Sidekiq::Worker
  def perform(number, text); end
end

class Nap
  include Sidekiq::Worker
  def perform(milliseconds, text) = sleep(milliseconds / 1000.0)
end

class Count
  include Sidekiq::Worker
  def perform(number, text) = Sidekiq.redis { |connection| connection.hincrby("bench:counted", "jobs", 1) }
end

# What differs is the Python job of this name.
class CountBare < Count
end
