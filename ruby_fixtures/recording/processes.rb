# frozen_string_literal: true

require_relative "engine"

# What a living process writes about itself, and how it is told to stop.
class Processes
  MASKED = "pid, nonce and thread id differ in each run: 4242, 5eed5eed5eed and tid000 stand for them. " \
    "The host is named by DYNO; rss (KB) and rtt_us are not measured but given"
  HOST = "fixture-host"
  QUEUES = %w[critical default].freeze

  def initialize(recorder)
    @recorder = recorder
  end

  def record
    ENV["DYNO"] = HOST
    process("heartbeat_info", key: ->(identity) { identity }) { |launcher| Engine.beat(launcher) }
    process("heartbeat_quiet", key: ->(identity) { identity }) { |launcher| quiet_and_beat(launcher) }
    process("heartbeat_work", key: ->(identity) { "#{identity}:workers" }) { |launcher| work_and_beat(launcher) }
    process("heartbeat_counts", key: ->(_identity) { "stat:processed" }) { |launcher| count_and_beat(launcher) }
    process("quiet_signal", key: ->(identity) { "#{identity}-signals" }) { |launcher| signal(launcher, :quiet!) }
    process("stop_signal", key: ->(identity) { "#{identity}-signals" }) { |launcher| signal(launcher, :stop!) }
    process("thread_dump_signal", key: ->(identity) { "#{identity}-signals" }) { |launcher| signal(launcher, :dump_threads) }
    process("process_gone", key: ->(_identity) { "processes" }) { |launcher| leave(launcher) }
  ensure
    ENV.delete("DYNO")
  end

  private

  def process(name, key:)
    launcher = nil
    ask = -> { key.call(Engine.identity(launcher)) }
    @recorder.situation(name, key: ask, masked: MASKED, mask: method(:mask)) do
      Engine.reset_counters
      launcher = Engine.launcher(QUEUES, concurrency: 2, rss_kb: 54_321, rtt_us: 123)
      details = yield(launcher)
      {"step" => name, "now" => FrozenWorld.now, "queues" => QUEUES, "concurrency" => 2, "tag" => "fixtures",
       "rss_kb" => 54_321, "rtt_us" => 123, **(details.is_a?(Hash) ? details : {})}
    end
  end

  def quiet_and_beat(launcher)
    launcher.quiet
    Engine.beat(launcher)
  end

  # A job is running while the heart beats.
  def work_and_beat(launcher)
    FixtureJob.perform_async("ledger_and_wait_for", "fixture:started", 1, "fixture:gate")
    before = Sidekiq.redis { |conn| conn.lrange("queue:default", 0, -1) }
    Engine.working(launcher) do
      sleep 0.01 until Sidekiq.redis { |conn| conn.llen("fixture:started") } == 1
      FrozenWorld.advance(4.75)
      Engine.beat(launcher)
      note_thread_ids(launcher)
      Sidekiq.redis { |conn| conn.set("fixture:gate", 1) }
    end
    Sidekiq.redis { |conn| conn.del("fixture:gate", "fixture:started") }
    {"before" => before}
  end

  def count_and_beat(launcher)
    FixtureJob.perform_async("raise")
    3.times { FixtureJob.perform_async("ok") }
    4.times { Engine.run_next("default") }
    Sidekiq.redis { |conn| conn.del("retry") }
    Engine.beat(launcher)
    {"processed" => 4, "failed" => 1}
  end

  def signal(launcher, button)
    Engine.beat(launcher)
    Sidekiq::ProcessSet.new.first.public_send(button)
  end

  def leave(launcher)
    Engine.beat(launcher)
    Engine.clear(launcher)
  end

  def note_thread_ids(launcher)
    @thread_ids = Sidekiq.redis { |conn| conn.hkeys("#{Engine.identity(launcher)}:workers") }
  end

  def mask(text)
    return "tid000" if @thread_ids&.include?(text)

    text.gsub(/#{HOST}:\d+:\h{12}/, "#{HOST}:4242:5eed5eed5eed").gsub(/"pid":\d+/, '"pid":4242')
  end
end
