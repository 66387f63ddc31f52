# frozen_string_literal: true

# Records what sidekiq-cron writes into an empty Redis: prints {"gem": version, "situations": {name: {key: value}}}. Jids and the
# times of saves are masked. The gem is the root's; a folder with a public release may be put in front by RUBYLIB.

require "json"
require "sidekiq"
require "sidekiq/cli"
begin
  require "sidekiq-cron"
rescue LoadError => e
  abort(e.message)
end

class KnownJob
  include(defined?(Sidekiq::Worker) ? Sidekiq::Worker : Sidekiq::Job)
  sidekiq_options queue: "low", retry: 3
  def perform(*); end
end

Sidekiq.logger.level = Logger::ERROR
MOMENT = Time.utc(2030, 1, 1, 12, 34, 5)

def redis
  Sidekiq.redis { |conn| yield conn }
end

def command(*words)
  redis { |conn| conn.respond_to?(:call) && !defined?(Redis::Namespace) ? conn.call(*words) : conn.call(words) }
rescue NoMethodError, ArgumentError, TypeError
  redis { |conn| conn.call(words) }
end

def pairs(flat)
  return flat.to_a if flat.is_a?(Hash)
  flat.first.is_a?(Array) ? flat : flat.each_slice(2).to_a
end

def read(key)
  case command("TYPE", key)
  when "hash" then pairs(command("HGETALL", key))
  when "set" then command("SMEMBERS", key).sort
  when "list" then command("LRANGE", key, 0, -1)
  when "zset" then command("ZRANGE", key, 0, -1)
  end
end

def masked(value)
  JSON.parse(JSON.generate(value).gsub(/[0-9a-f]{24}/, "JID").gsub(/_at\\":\d+(\.\d+)?/, '_at\\":0'))
end

def situation
  command("FLUSHDB")
  yield
  command("KEYS", "*").sort.to_h { |key| [key, masked(read(key))] }
end

def saved(**options)
  job = Sidekiq::Cron::Job.new(options)
  job.save || abort(job.errors.join(", "))
  job
end

def found(name)
  Sidekiq::Cron::Job.find(name)
end

def enqueue(job)
  job.respond_to?(:enqueue!) ? job.enqueue!(MOMENT) : job.enque!(MOMENT)
end

SITUATIONS = {
  "saved, of a class that Ruby lacks" => lambda {
    saved(name: "report", cron: "*/5 * * * * Europe/Berlin", class: "PythonJob", args: [1, "two", {"a" => nil}])
  },
  "saved, of a class that Ruby has" => lambda {
    saved(name: "report", cron: "0 9 * * 1-5 Etc/UTC", class: "KnownJob", description: "At nine", args: [])
  },
  "saved, into a queue" => lambda {
    saved(name: "report", cron: "0 9 * * * Etc/UTC", class: "KnownJob", queue: "high", args: ["ä"])
  },
  "saved, with the date as an argument" => lambda {
    saved(name: "report", cron: "0 9 * * * Etc/UTC", class: "PythonJob", date_as_argument: true)
  },
  "disabled" => lambda {
    saved(name: "report", cron: "0 9 * * * Etc/UTC", class: "PythonJob")
    found("report").disable!
  },
  "enqueued" => lambda {
    saved(name: "report", cron: "0 9 * * * Etc/UTC", class: "PythonJob", args: [1])
    enqueue(found("report"))
  },
  "destroyed" => lambda {
    saved(name: "report", cron: "0 9 * * * Etc/UTC", class: "PythonJob", args: [1])
    enqueue(found("report"))
    command("DEL", "queue:default", "queues")
    found("report").destroy
  }
}.freeze

begin
  require "sidekiq/cron/version"
rescue LoadError
  nil
end
version = defined?(Sidekiq::Cron::VERSION) ? Sidekiq::Cron::VERSION : Gem::Specification.find_by_name("sidekiq-cron").version.to_s
puts JSON.pretty_generate(
  "gem" => version,
  "sidekiq" => Sidekiq::VERSION,
  "situations" => SITUATIONS.transform_values { |code| situation(&code) }
)
