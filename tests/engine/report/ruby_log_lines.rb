# Reads {"payload": {…}, "elapsed": 0.1 or null, "message": "…"} a line; answers with Ruby Sidekiq's log line for it in each of
# its formats, as process 1 and thread `thread` at 1700000000.25.
require "json"
require "sidekiq"
require "sidekiq/job_logger"

AT = Time.at(1_700_000_000, 250, :millisecond)

def line(name, message)
  formatter = Sidekiq::Logger::Formatters.const_get(name).new
  formatter.define_singleton_method(:tid) { "thread" }
  formatter.call("INFO", AT, nil, message).sub("pid=#{$$}", "pid=1").sub("\"pid\":#{$$}", "\"pid\":1")
end

job_logger = Sidekiq::JobLogger.new(Sidekiq::Logger.new(IO::NULL))
$stdin.each_line do |text|
  question = JSON.parse(text)
  job_logger.prepare(question["payload"]) do
    Sidekiq::Context.add(:elapsed, question["elapsed"]) if question["elapsed"]
    puts JSON.generate(%w[Pretty WithoutTimestamp JSON].to_h { |name| [name, line(name, question["message"])] })
  end
end
