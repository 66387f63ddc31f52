# frozen_string_literal: true

require_relative "engine"

# What a living process writes about itself, and how it is told to stop.
class Processes
  MASKED = "pid, nonce and thread id differ in each run: 4242, 5eed5eed5eed and tid000 stand for them. " \
    "The host is named by DYNO; rss (KB) and rtt_us are not measured but given"
  HOST = "fixture-host"
  QUEUES = %w[critical default].freeze
  WEIGHTED = [%w[critical 3], %w[default 1], %w[low 0]].freeze
  CAPSULES = {"single" => [["single"], 1]}.freeze
  RANDOM = [%w[critical 1], %w[default 1]].freeze

  def initialize(recorder)
    @recorder = recorder
  end

  def record
    ENV["DYNO"] = HOST
    process("heartbeat_info", key: ->(identity) { identity }) { |launcher| beat(launcher) }
    process("heartbeat_quiet", key: ->(identity) { identity }) { |launcher| quiet_and_beat(launcher) }
    process("heartbeat_work", key: ->(identity) { "#{identity}:#{Engine.work_suffix}" }) { |launcher| work_and_beat(launcher) }
    process("heartbeat_again", key: ->(identity) { identity }) { |launcher| beat_twice(launcher) }
    process("heartbeat_weights", key: ->(identity) { identity }, queues: WEIGHTED) { |launcher| beat(launcher) }
    process("heartbeat_random", key: ->(identity) { identity }, queues: RANDOM) { |launcher| beat(launcher) }
    process("heartbeat_capsules", key: ->(identity) { identity }, capsules: CAPSULES) { |launcher| beat(launcher) } if Engine.since?("7")
    process("heartbeat_embedded", key: ->(identity) { identity }, embedded: true) { |launcher| beat(launcher) } if Engine.since?("7.0.3")
    process("heartbeat_counts_of_success", key: ->(_identity) { "stat:processed" }) { |launcher| succeed_and_beat(launcher) }
    process("heartbeat_counts", key: ->(_identity) { "stat:processed" }) { |launcher| count_and_beat(launcher) }
    process("quiet_signal", key: ->(identity) { "#{identity}-signals" }) { |launcher| signal(launcher, :quiet!) }
    process("stop_signal", key: ->(identity) { "#{identity}-signals" }) { |launcher| signal(launcher, :stop!) }
    process("thread_dump_signal", key: ->(identity) { "#{identity}-signals" }) { |launcher| signal(launcher, :dump_threads) }
    process("cleaned_up", key: ->(_identity) { "processes" }) { clean_up }
    process("process_gone", key: ->(_identity) { "processes" }) { |launcher| leave(launcher) }
  ensure
    ENV.delete("DYNO")
  end

  private

  def process(name, key:, queues: QUEUES, **more)
    launcher = nil
    ask = -> { key.call(Engine.identity(launcher)) }
    @recorder.situation(name, key: ask, masked: MASKED, mask: method(:mask)) do
      Engine.reset_counters
      launcher = Engine.launcher(queues, concurrency: 2, rss_kb: 54_321, rtt_us: 123, **more)
      details = yield(launcher)
      {"step" => name, "now" => FrozenWorld.now, "queues" => queues, "concurrency" => 2, "tag" => "fixtures",
       "rss_kb" => 54_321, "rtt_us" => 123, "capsules" => more[:capsules], "embedded" => more[:embedded]}.compact.merge(details.is_a?(Hash) ? details : {})
    end
  end

  def quiet_and_beat(launcher)
    launcher.quiet
    beat(launcher)
  end

  # A job is running while the heart beats.
  def work_and_beat(launcher)
    FixtureJob.perform_async("ledger_and_wait_for", "fixture:started", 1, "fixture:gate")
    before = link.call("LRANGE", "queue:default", 0, -1)
    Engine.working(launcher) do
      sleep 0.01 until link.call("LLEN", "fixture:started") == 1
      FrozenWorld.advance(4.75)
      beat(launcher)
      note_thread_ids(launcher)
      link.call("SET", "fixture:gate", 1)
    end
    link.call("DEL", "fixture:gate", "fixture:started")
    {"queue" => "default", "before" => before}
  end

  def count_and_beat(launcher)
    FixtureJob.perform_async("raise")
    3.times { FixtureJob.perform_async("ok") }
    4.times { Engine.run_next("default") }
    link.call("DEL", "retry")
    beat(launcher)
    {"processed" => 4, "failed" => 1}
  end

  def beat_twice(launcher)
    Engine.beat(launcher)
    FrozenWorld.advance(10.5)
    beat(launcher)
    {"started_at" => FrozenWorld::START}
  end

  def succeed_and_beat(launcher)
    2.times { FixtureJob.perform_async("ok") }
    2.times { Engine.run_next("default") }
    beat(launcher)
    {"processed" => 2, "failed" => 0}
  end

  # The only registered process has no heartbeat any more.
  def clean_up
    gone = "gone-host:1:000000000000"
    link.call("SADD", "processes", gone)
    @recorder.step { Sidekiq::ProcessSet.new }
    {"state_before" => [gone]}
  end

  def signal(launcher, button)
    Engine.beat(launcher)
    process = Sidekiq::ProcessSet.new.first
    @recorder.step { process.public_send(button) }
  end

  def leave(launcher)
    Engine.beat(launcher)
    @recorder.step { Engine.clear(launcher) }
  end

  def note_thread_ids(launcher)
    @thread_ids = link.call("HKEYS", "#{Engine.identity(launcher)}:#{Engine.work_suffix}")
  end

  def beat(launcher)
    @recorder.step(except: "BRPOP") { Engine.beat(launcher) }
  end

  def link
    PrivateRedis.link
  end

  def mask(text)
    return "tid000" if @thread_ids&.include?(text)

    text.gsub(/#{HOST}:\d+:\h{12}/, "#{HOST}:4242:5eed5eed5eed").gsub(/"pid":\d+/, '"pid":4242')
  end
end
