# frozen_string_literal: true

require "fileutils"
require "redis"
require "socket"
require "tmpdir"

# A Redis server for the recording alone: the one that REDIS_URL names, which must be empty, or one started here.
module PrivateRedis
  def self.start
    url = ENV["REDIS_URL"]
    url ? refuse_if_used(url) : ENV["REDIS_URL"] = launch
    keep_hashes_in_order(ENV["REDIS_URL"])
  end

  # Short hashes keep the order in which their fields were written; that order is worth recording.
  def self.keep_hashes_in_order(url)
    client = Redis.new(url: url)
    setting = client.info["redis_version"] < "7" ? "hash-max-ziplist-value" : "hash-max-listpack-value"
    client.config(:set, setting, 100_000)
  ensure
    client&.close
  end

  # Every situation flushes the database, so a database with something in it is somebody's.
  def self.refuse_if_used(url)
    client = Redis.new(url: url)
    abort "#{url} is not empty; the recording flushes it. Name an empty database, or unset REDIS_URL." if client.dbsize.positive?
  ensure
    client&.close
  end

  def self.launch
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

  def self.wait_for(url)
    200.times do
      return Redis.new(url: url).tap(&:ping).close
    rescue Redis::CannotConnectError
      sleep 0.02
    end
    abort "redis-server did not start; on Debian: apt-get install redis-server"
  end
end
