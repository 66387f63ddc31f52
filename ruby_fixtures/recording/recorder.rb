# frozen_string_literal: true

require "base64"
require "fileutils"
require "json"
require_relative "frozen_world"

# Plays one situation at a time on an empty database and writes what Redis holds afterwards into a file of its own.
class Recorder
  def initialize(folder:, only: nil)
    @folder = File.join(folder, Sidekiq::VERSION)
    @only = only
    @names = []
    FileUtils.mkdir_p(@folder)
  end

  attr_reader :folder, :names

  # Play a situation. The block's value, a Hash, is the file's "input".
  #
  # @param name [String] the file's name
  # @param key [String, #call] the key that the situation is about; a callable is asked after the block ran
  # @param masked [String, nil] what differs from run to run, and what stands for it here
  # @param mask [#call, nil] takes a raw text and returns it with the differing parts replaced
  def situation(name, key:, masked: nil, mask: nil)
    raise ArgumentError, "two situations are named #{name}" if @names.include?(name)

    @names << name
    return if @only && @only != name

    FrozenWorld.reset
    Sidekiq.redis(&:flushdb)
    input = yield
    key = key.call if key.respond_to?(:call)
    write(name, key, input, masked, mask || :itself.to_proc)
  end

  # Files of situations that are no longer there.
  def remove_leftovers
    return if @only

    (Dir.children(@folder) - @names.map { |name| "#{name}.json" }).each { |file| File.delete(File.join(@folder, file)) }
  end

  # Everything in the database: { key => { "type", "members", and for sorted sets "scores" } }.
  def self.snapshot
    Sidekiq.redis { |conn| conn.keys("*").sort.to_h { |key| [key, read(conn, key)] } }
  end

  def self.read(conn, key)
    type = conn.type(key)
    case type
    when "string" then {"type" => type, "members" => [conn.get(key)]}
    when "list" then {"type" => type, "members" => conn.lrange(key, 0, -1)}
    when "set" then {"type" => type, "members" => conn.smembers(key).sort}
    when "hash" then {"type" => type, "members" => conn.call(["hgetall", key]).each_slice(2).to_a}
    when "zset"
      pairs = conn.call(["zrange", key, 0, -1, "withscores"]).each_slice(2).to_a
      {"type" => type, "members" => pairs.map(&:first), "scores" => pairs.map(&:last)}
    end
  end

  private

  def write(name, key, input, masked, mask)
    elsewhere = Recorder.snapshot
    recorded = elsewhere.delete(key) || {"type" => "none", "members" => []}
    content = {
      "situation" => name, "sidekiq" => Sidekiq::VERSION, "ruby" => RUBY_VERSION, "json" => JSON::VERSION,
      "input" => input, "key" => key, **recorded, "elsewhere" => elsewhere, "masked" => masked
    }
    File.write(File.join(@folder, "#{name}.json"), "#{pretty(masked_and_printable(content, mask))}\n")
  end

  # ASCII alone, so that a diff shows what an editor would hide; the escapes are JSON's and stand for the real characters.
  def pretty(content)
    JSON.pretty_generate(content, ascii_only: true)
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
