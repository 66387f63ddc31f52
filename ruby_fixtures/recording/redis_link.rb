# frozen_string_literal: true

require "socket"
require "uri"

# A connection of the recording's own, so that what Sidekiq's client library sends is not mixed with what the recording
# asks, and every release is read in the same way: RESP2, replies as strings, integers, arrays and nil.
class RedisLink
  def initialize(url)
    @socket = connect(URI.parse(url))
    @database = url.start_with?("redis:") ? URI.parse(url).path.to_s.delete_prefix("/").to_i : 0
    call("SELECT", @database) unless @database.zero?
  end

  # The number of its database.
  attr_reader :database

  # Send one command; its reply. Errors that Redis reports are raised.
  def call(*words)
    @socket.write("*#{words.size}\r\n", *words.map { |word| bulk(word.to_s) })
    read
  end

  # One reply, or one line of MONITOR.
  def read
    line = @socket.gets("\r\n") or raise IOError, "Redis closed the connection"
    kind, rest = line[0], line[1..-3]
    case kind
    when "+" then rest
    when ":" then rest.to_i
    when "-" then raise "Redis refused: #{rest}"
    when "$" then rest == "-1" ? nil : @socket.read(rest.to_i + 2)[0..-3].force_encoding("UTF-8")
    when "*" then rest == "-1" ? nil : Array.new(rest.to_i) { read }
    else raise IOError, "not a reply of Redis: #{line.inspect}"
    end
  end

  def close
    @socket.close
  end

  private

  def connect(address)
    return UNIXSocket.new(address.path) if address.scheme == "unix"

    TCPSocket.new(address.host, address.port || 6379).tap { |socket| socket.setsockopt(:TCP, :NODELAY, true) }
  end

  def bulk(text)
    "$#{text.bytesize}\r\n".b + text.b + "\r\n".b
  end
end
