# frozen_string_literal: true

# Records what the gem sidekiq-batch does in Redis when its jobs end: prints {"gem", "sidekiq", "histories": {name: history}}. A
# history has what stood in Redis once its batches were open (`before`), and `steps`: which job ended and how, and the keys that
# changed (null: gone). Jobs end through the gem's own server middleware.
#
#   RUBYLIB=…/sidekiq-batch/lib REDIS_URL=… ruby ruby_fixtures/record_sidekiq_batch.rb [RANDOM_HISTORIES SEED]

require "json"
require "sidekiq"
require "sidekiq/batch"

class BatchedJob
  include Sidekiq::Job
  sidekiq_options queue: "jobs"
  def perform(*); end
end

Sidekiq.default_configuration.logger.level = Logger::ERROR
Sidekiq.default_configuration.client_middleware { |chain| chain.add(Sidekiq::Batch::Middleware::ClientMiddleware) unless chain.exists?(Sidekiq::Batch::Middleware::ClientMiddleware) }

def redis(&) = Sidekiq.redis(&)

def read(key)
  redis do |conn|
    case conn.type(key)
    when "hash" then conn.hgetall(key)
    when "set" then conn.smembers(key).sort
    when "list" then conn.lrange(key, 0, -1)
    when "string" then conn.get(key)
    end
  end
end

def state
  redis { |conn| conn.call("KEYS", "*") }.sort.to_h { |key| [key, read(key)] }
end

# Opens the batches of a tree: {name:, on: [[event, class, options]], jobs:, queue:, children: [...]}. Notes their bids by name.
def open_batch(node, bids)
  batch = Sidekiq::Batch.new
  bids[node[:name]] = batch.bid
  batch.description = node[:name] if node[:described]
  batch.callback_queue = node[:queue] if node[:queue]
  (node[:on] || []).each { |event, callback, options| options ? batch.on(event, callback, options) : batch.on(event, callback) }
  batch.jobs do
    node.fetch(:jobs, 0).times { |number| BatchedJob.perform_async(node[:name], number) }
    (node[:children] || []).each { |child| open_batch(child, bids) }
  end
end

# Of "a/0" the job number 0 of the batch a; of "a:complete/0" the first job of its callbacks, as its bid is drawn anew each time.
def payload_of(name, bids)
  whose, number = name.split("/")
  batch, event = whose.split(":")
  jobs = redis { |conn| conn.call("KEYS", "queue:*").flat_map { |key| conn.lrange(key, 0, -1).reverse } }.map { |raw| JSON.parse(raw) }
  if event
    jobs.select { |job| job["class"].include?("Callback") && job["args"][3] == bids[batch] && job["args"][1] == event }.fetch(number.to_i)
  else
    jobs.find { |job| job["args"] == [batch, number.to_i] }
  end
end

def end_job(payload, outcome)
  Sidekiq::Batch::Middleware::ServerMiddleware.new.call(nil, payload, payload["queue"]) { raise "boom" if outcome == "failed" }
rescue RuntimeError => e
  raise unless e.message == "boom"
end

def history(tree, steps)
  redis { |conn| conn.call("FLUSHDB") }
  bids = {}
  open_batch(tree, bids)
  before = last = state
  done = []
  step = lambda do |outcome, name|
    payload = payload_of(name, bids)
    end_job(payload, outcome)
    now = state
    changed = (now.keys | last.keys).reject { |key| now[key] == last[key] }.sort.to_h { |key| [key, now[key]] }
    last = now
    done << { "job" => name, "outcome" => outcome, "changed" => changed }
  end
  steps.respond_to?(:call) ? steps.call(step, bids) : steps.each { |outcome, name| step.call(outcome, name) }
  { "bids" => bids, "before" => before, "steps" => done }
end

BOTH = [["complete", "Done", { "id" => 42 }], ["success", "Done", { "id" => 42 }]].freeze

CHOSEN = {
  "both jobs succeed" => [
    { name: "a", jobs: 2, on: BOTH, described: true },
    [%w[ok a/0], %w[ok a/1], %w[ok a:complete/0], %w[ok a:success/0]]
  ],
  "nobody is called back" => [{ name: "a", jobs: 2 }, [%w[ok a/0], %w[ok a/1]]],
  "on success alone" => [{ name: "a", jobs: 1, on: [["success", "Done#finish"]], queue: "low" }, [%w[ok a/0], %w[ok a:success/0]]],
  "several callbacks" => [
    { name: "a", jobs: 1, on: [["complete", "Done", { "f" => 1.5, "e" => [], "h" => {}, "t" => "é \"/\\ \u2028", "n" => nil }],
                               ["complete", "Other#method", { "big" => 12345678901234567890 }]] },
    [%w[ok a/0], %w[ok a:complete/0], %w[ok a:complete/1]]
  ],
  "one fails and stays so" => [
    { name: "a", jobs: 2, on: BOTH }, [%w[failed a/0], %w[failed a/0], %w[ok a/1], %w[ok a:complete/0]]
  ],
  # `success` is never called: the batch of the callback counts as a child of the batch that has failed, and no such child succeeds.
  "the last one fails, and succeeds by its retry" => [
    { name: "a", jobs: 2, on: BOTH }, [%w[ok a/0], %w[failed a/1], %w[ok a:complete/0], %w[ok a/1]]
  ],
  "one fails, and succeeds before the last one ends" => [
    { name: "a", jobs: 2, on: BOTH }, [%w[failed a/0], %w[ok a/0], %w[ok a/1], %w[ok a:complete/0], %w[ok a:success/0]]
  ],
  "all fail, and nobody is called back" => [{ name: "a", jobs: 2 }, [%w[failed a/0], %w[failed a/1], %w[ok a/0], %w[ok a/1]]],
  "a callback fails first" => [
    { name: "a", jobs: 1, on: BOTH }, [%w[ok a/0], %w[failed a:complete/0], %w[ok a:complete/0], %w[ok a:success/0]]
  ],
  "a child" => [
    { name: "a", jobs: 1, on: BOTH, children: [{ name: "b", jobs: 1, on: BOTH }] },
    [%w[ok a/0], %w[ok b/0], %w[ok b:complete/0], %w[ok b:success/0], %w[ok a:complete/0], %w[ok a:success/0]]
  ],
  "a child that nobody waits for but its parent" => [
    { name: "a", on: BOTH, children: [{ name: "b", jobs: 1 }, { name: "c", jobs: 1 }] },
    [%w[ok b/0], %w[ok c/0], %w[ok a:complete/0], %w[ok a:success/0]]
  ],
  "a child fails for good" => [
    { name: "a", jobs: 1, on: BOTH, children: [{ name: "b", jobs: 1, on: BOTH }] },
    [%w[ok a/0], %w[failed b/0], %w[ok b:complete/0], %w[failed b/0]]
  ],
  "a child fails, and succeeds by its retry" => [
    { name: "a", jobs: 1, on: BOTH, children: [{ name: "b", jobs: 2 }] },
    [%w[failed b/0], %w[ok b/1], %w[ok a/0], %w[ok b/0], %w[ok a:complete/0]]
  ],
  "a grandchild" => [
    { name: "a", on: BOTH, children: [{ name: "b", on: BOTH, children: [{ name: "c", jobs: 1 }] }] },
    [%w[ok c/0], %w[ok b:complete/0], %w[ok b:success/0], %w[ok a:complete/0], %w[ok a:success/0]]
  ],
  "a job that runs twice" => [{ name: "a", jobs: 2, on: BOTH }, [%w[ok a/0], %w[ok a/0], %w[ok a/1]]]
}.freeze

def random_tree(draw, names)
  node = { name: names.shift, jobs: draw.rand(3), on: [] }
  %w[complete success].each { |event| draw.rand(3).times { |number| node[:on] << [event, "Done#{number}", { "n" => number }] } }
  node[:queue] = "low" if draw.rand(3).zero?
  node[:children] = Array.new(draw.rand(3)) { random_tree(draw, names) if names.size > 0 }.compact if draw.rand < 0.6
  node[:jobs] += 1 if node[:jobs].zero? && node[:children].to_a.empty?
  node
end

def jobs_of(node)
  Array.new(node[:jobs]) { |number| "#{node[:name]}/#{number}" } + (node[:children] || []).flat_map { |child| jobs_of(child) }
end

# Jobs and callbacks end in any order; one that failed ends again later.
def random_history(seed)
  draw = Random.new(seed)
  tree = random_tree(draw, %w[a b c d e])
  waiting = jobs_of(tree)
  history(tree, lambda do |step, bids|
    seen = {}
    20.times do
      redis { |conn| conn.call("KEYS", "queue:*").flat_map { |key| conn.lrange(key, 0, -1).reverse } }.each do |raw|
        job = JSON.parse(raw)
        next if !job["class"].include?("Callback") || seen[job["jid"]]
        seen[job["jid"]] = true
        whose = "#{bids.key(job["args"][3])}:#{job["args"][1]}"
        waiting << "#{whose}/#{seen[whose] = seen.fetch(whose, -1) + 1}"
      end
      break if waiting.empty?
      name = waiting.sample(random: draw)
      outcome = draw.rand < 0.7 ? "ok" : "failed"
      waiting.delete(name) if outcome == "ok"
      step.call(outcome, name)
    end
  end)
end

count, seed = ARGV.map(&:to_i)
histories =
  if count
    Array.new(count) { |number| ["random #{seed + number}", random_history(seed + number)] }.to_h
  else
    CHOSEN.transform_values { |tree, steps| history(tree, steps) }
  end
puts JSON.generate("gem" => Sidekiq::Batch::VERSION, "sidekiq" => Sidekiq::VERSION, "histories" => histories)
