# Answers questions about JSON and payloads with real Ruby and real Sidekiq: one question a line, one answer a line.
#
# A question is a word and hexadecimal bytes; an answer is hexadecimal bytes, or `!` and the name of the error.
#
#   json <text>       JSON.parse, then JSON.generate
#   floats <doubles>  big-endian doubles; their JSON texts, one a line
#   strings <text>    strings with a NUL behind each; their JSON texts, one a line
#   push <json>       {"ruby": code, "now": seconds, …}: what the code pushed, as JSON lines [command, arguments…]
#   fail <json>       {"payload", "queue", "error_class", "message", "backtrace", "now"}: the text that goes to `retry`
#   backtrace <text>  the lines of an `error_backtrace`, as JSON
require "json"
require "sidekiq"
require "sidekiq/api"
require "sidekiq/job_retry"

JID = "0123456789abcdef01234567"
Sidekiq.logger.level = Logger::FATAL
Sidekiq.strict_args!(false) if Sidekiq.respond_to?(:strict_args!) && Sidekiq::VERSION >= "7"

module FrozenClock
  class << self
    attr_accessor :now
  end

  def now(*)
    FrozenClock.now ? at(FrozenClock.now) : super
  end
end
Time.singleton_class.prepend(FrozenClock)

module FixedIds
  def hex(*) = JID
end
SecureRandom.singleton_class.prepend(FixedIds)

# Takes the commands that Sidekiq would send.
class Recorder
  attr_reader :commands

  def initialize
    @commands = []
  end

  def with
    yield self
  end

  def pipelined
    yield self
  end

  def method_missing(name, *arguments)
    @commands << [name, *arguments]
    0
  end

  def respond_to_missing?(*) = true
end

module RecordedRedis
  class << self
    attr_accessor :recorder
  end

  def redis
    yield RecordedRedis.recorder
  end
end
Sidekiq.singleton_class.prepend(RecordedRedis)

# Job classes of any name and options, for the code of `push`.
def job(name, options = {})
  Object.send(:remove_const, name) if Object.const_defined?(name)
  Class.new { include Sidekiq::Worker }.tap do |klass|
    Object.const_set(name, klass)
    klass.sidekiq_options(options) unless options.empty?
  end
end

def push(question)
  FrozenClock.now = question["now"]
  recorder = Recorder.new
  Sidekiq::Client.via(recorder) { eval(question["ruby"]) }
  recorder.commands.map { |command| JSON.generate(command) }.join("\n")
ensure
  FrozenClock.now = nil
end

def named_error(name, message, backtrace)
  Class.new(StandardError) { define_singleton_method(:name) { name } }.new(message).tap { |error| error.set_backtrace(backtrace) }
end

def fail_job(question)
  FrozenClock.now = question["now"]
  RecordedRedis.recorder = Recorder.new
  error = named_error(question["error_class"], question["message"], question["backtrace"])
  payload = JSON.parse(question["payload"])
  Sidekiq::JobRetry.new.send(:attempt_retry, nil, payload, question["queue"], error)
  RecordedRedis.recorder.commands.first.last
ensure
  FrozenClock.now = nil
end

def answer(word, bytes)
  text = bytes.dup.force_encoding("UTF-8")
  case word
  when "json" then JSON.generate(JSON.parse(text))
  when "floats" then bytes.unpack("G*").map { |float| JSON.generate(float) }.join("\n")
  when "strings" then text.split("\0", -1)[0...-1].map { |string| JSON.generate(string) }.join("\n")
  when "push" then push(JSON.parse(text))
  when "fail" then fail_job(JSON.parse(text))
  when "backtrace" then JSON.generate(Sidekiq::JobRecord.new({"error_backtrace" => text}).error_backtrace)
  end
end

$stdin.binmode
$stdout.sync = true
puts "#{Sidekiq::VERSION} #{JSON::VERSION}"
while (line = $stdin.gets)
  word, hex = line.chomp.split(" ", 2)
  begin
    puts answer(word, [hex.to_s].pack("H*")).unpack1("H*")
  rescue StandardError, SystemStackError => error
    puts "!#{error.class}"
  end
end
