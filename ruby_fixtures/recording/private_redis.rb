# frozen_string_literal: true

require "fileutils"
require "socket"
require "tmpdir"
require_relative "redis_link"

# A Redis server for the recording alone: the one that REDIS_URL names, which must be empty, or one started here.
module PrivateRedis
  # Older servers lack commands that Sidekiq 8 sends, and write scores in another way.
  OLDEST = 7

  class << self
    # The recording's own connection to it.
    attr_reader :link

    def start
      given = ENV["REDIS_URL"]
      ENV["REDIS_URL"] = launch unless given
      @link = RedisLink.new(ENV.fetch("REDIS_URL"))
      refuse_if_old
      refuse_if_used if given
      # Short hashes keep the order in which their fields were written; that order is worth recording.
      @link.call("CONFIG", "SET", "hash-max-listpack-value", 100_000)
    end

    # For the next recording.
    def leave_empty
      @link.call("FLUSHDB")
    end

    private

    def refuse_if_old
      version = @link.call("INFO", "server")[/^redis_version:(\S+)/, 1]
      abort "Redis #{version} is too old to record with; use #{OLDEST}.0 or later." if version.to_i < OLDEST
    end

    # Every situation flushes the database, so a database with something in it is somebody's.
    def refuse_if_used
      return if @link.call("DBSIZE").zero?

      abort "#{ENV["REDIS_URL"]} is not empty; the recording flushes it. Name an empty database, or unset REDIS_URL."
    end

    def launch
      directory = Dir.mktmpdir("ruby-fixtures-redis")
      port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
      pid = spawn("redis-server", "--bind", "127.0.0.1", "--port", port.to_s, "--dir", directory, "--save", "",
        out: File::NULL, err: File::NULL)
      at_exit do
        Process.kill("KILL", pid)
        Process.wait(pid)
        FileUtils.rm_rf(directory)
      end
      "redis://127.0.0.1:#{port}/0".tap { |url| wait_for(url) }
    end

    def wait_for(url)
      500.times do
        return RedisLink.new(url).tap { |link| link.call("PING") }.close
      rescue SystemCallError, RuntimeError
        sleep 0.02
      end
      abort "redis-server did not start; on Debian: apt-get install redis-server"
    end
  end
end
