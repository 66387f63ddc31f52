# frozen_string_literal: true

require "json"
require "securerandom"
require_relative "redis_link"

# The commands that a step sends to Redis, as the server saw them (MONITOR on a connection of its own).
#
# Left out: how a connection opens and is found to be alive, and what the jobs of the fixtures themselves do (their keys
# start with `fixture:`).
# A script's text and digest are replaced by words; what a script did follows it, with `script:` before the command.
class CommandTrace
  OPENING = %w[HELLO CLIENT SELECT AUTH PING].freeze
  LINE = /\A\d+\.\d+ \[(?<database>\d+) (?<client>[^\]]+)\] (?<words>.*)\z/m
  WORD = /"((?:[^"\\]|\\.)*)"/m
  ESCAPES = {"n" => "\n", "r" => "\r", "t" => "\t", "a" => "\a", "b" => "\b"}.freeze

  def initialize(url)
    @marker = RedisLink.new(url)
    @monitor = RedisLink.new(url)
    @monitor.call("MONITOR")
    @count = 0
  end

  # What was sent while the block ran: [[command, ...], its value].
  #
  # @param except [String, nil] a command that other threads may send at any moment
  def of(except: nil)
    read_to(mark)
    value = yield
    [tidy(read_to(mark)).reject { |command, *| command == except }, value]
  end

  private

  def mark
    "recording-#{@count += 1}".tap { |name| @marker.call("ECHO", name) }
  end

  def read_to(name)
    commands = []
    loop do
      match = LINE.match(@monitor.read)
      next unless match && match[:database].to_i == @marker.database

      words = match[:words].scan(WORD).map { |(text)| unescape(text) }
      return commands if words == ["ECHO", name]

      commands << [match[:client], words]
    end
  end

  def tidy(commands)
    kept = commands.reject { |_, words| OPENING.include?(words.first.upcase) || words.any? { |word| word.start_with?("fixture:") } }
    named = kept.map { |client, words| named_script(client == "lua" ? "script:#{words.first.upcase}" : words.first.upcase, words) }
    named.chunk_while { |one, next_one| one == next_one && one.first == "BRPOP" }.map(&:first)
  end

  def named_script(command, words)
    rest = words.drop(1)
    case command
    when "SCRIPT" then [command, rest.first.upcase, "<text>"]
    when "EVALSHA" then [command, "<digest>", *rest.drop(1)]
    else [command, *rest]
    end
  end

  def unescape(text)
    text.b.gsub(/\\(x\h\h|.)/mn) { $1.size == 3 ? $1[1, 2].hex.chr : ESCAPES.fetch($1, $1) }.force_encoding("UTF-8")
  end
end
