# frozen_string_literal: true

require "base64"
require "fileutils"
require "json"
require_relative "command_trace"
require_relative "frozen_world"
require_relative "private_redis"

# Plays one situation at a time on an empty database and writes what Redis holds afterwards into a file of its own.
class Recorder
  def initialize(folder:, only: nil)
    @folder = File.join(folder, Sidekiq::VERSION)
    @only = only
    @names = []
    @recorded = 0
    @trace = CommandTrace.new(ENV.fetch("REDIS_URL"))
    FileUtils.mkdir_p(@folder)
  end

  # How many situations were recorded.
  attr_reader :recorded

  attr_reader :folder

  # Play a situation. The block's value, a Hash, is the file's "input"; the block calls `step` around what it is about.
  #
  # @param name [String] the file's name
  # @param key [String, #call] the key that the situation is about; a callable is asked after the block ran
  # @param masked [String, nil] what differs from run to run, and what stands for it here
  # @param mask [#call, nil] takes a raw text and returns it with the differing parts replaced
  def situation(name, key:, masked: nil, mask: nil)
    raise ArgumentError, "two situations are named #{name}" if @names.include?(name)

    @names << name
    return if @only && @only != name

    @recorded += 1
    FrozenWorld.reset
    PrivateRedis.link.call("FLUSHDB")
    @commands = []
    input = yield
    key = key.call if key.respond_to?(:call)
    write(name, key, input, masked, mask || :itself.to_proc)
  end

  # Run the block and keep the commands that it sends to Redis; the block's value.
  def step(except: nil, &block)
    @commands, value = @trace.of(except: except, &block)
    value
  end

  # Files of situations that are no longer there.
  def remove_leftovers
    return if @only

    (Dir.children(@folder) - @names.map { |name| "#{name}.json" }).each { |file| File.delete(File.join(@folder, file)) }
  end

  # Everything in the database: { key => { "type", "members", and for sorted sets "scores" } }.
  def self.snapshot
    link = PrivateRedis.link
    link.call("KEYS", "*").sort.to_h { |key| [key, read(link, key)] }
  end

  def self.read(link, key)
    type = link.call("TYPE", key)
    case type
    when "string" then {"type" => type, "members" => [link.call("GET", key)]}
    when "list" then {"type" => type, "members" => link.call("LRANGE", key, 0, -1)}
    when "set" then {"type" => type, "members" => link.call("SMEMBERS", key).sort}
    when "hash" then {"type" => type, "members" => link.call("HGETALL", key).each_slice(2).to_a}
    when "zset"
      pairs = link.call("ZRANGE", key, 0, -1, "WITHSCORES").each_slice(2).to_a
      {"type" => type, "members" => pairs.map(&:first), "scores" => pairs.map(&:last)}
    end
  end

  private

  def write(name, key, input, masked, mask)
    elsewhere = Recorder.snapshot
    recorded = elsewhere.delete(key) || {"type" => "none", "members" => []}
    content = {
      "situation" => name, "sidekiq" => Sidekiq::VERSION, "ruby" => RUBY_VERSION, "json" => JSON::VERSION,
      "input" => input, "key" => key
    }.merge(recorded).merge("elsewhere" => elsewhere, "masked" => masked)
    commands = masked_and_printable(@commands, mask)
    File.write(File.join(@folder, "#{name}.json"), pretty(masked_and_printable(content, mask), commands))
  end

  # ASCII alone, so that a diff shows what an editor would hide; the escapes are JSON's and stand for the real characters.
  # Commands come last, a line each.
  def pretty(content, commands)
    lines = commands.map { |command| "\n    #{JSON.generate(command, ascii_only: true)}" }
    rest = JSON.pretty_generate(content, ascii_only: true, max_nesting: 0).delete_suffix("\n}")
    %(#{rest},\n  "commands": [#{lines.join(",")}#{"\n  " unless lines.empty?}]\n}\n)
  end

  # Text that is not UTF-8 is written as {"base64": "..."}.
  def masked_and_printable(value, mask)
    case value
    when Hash then value.to_h { |key, inner| [mask.call(key.to_s), masked_and_printable(inner, mask)] }
    when Array then value.map { |inner| masked_and_printable(inner, mask) }
    when String
      text = value.dup.force_encoding("UTF-8")
      text.valid_encoding? ? mask.call(text) : {"base64" => Base64.strict_encode64(value)}
    else value
    end
  end
end
