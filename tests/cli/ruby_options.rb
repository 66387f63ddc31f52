# Reads questions from standard input, one JSON object a line, and answers each with one.
#
#   {"flags": ["-C", "x.yml"], "env": {"X": "1"}, "directory": "/app"} -> the options that Ruby Sidekiq's command line makes
#   {"erb": "a: <%= ENV['X'] -%>", "env": {…}}                         -> {"text": "a: 1"}
#
# An error of Ruby's is answered as {"error": "…"}.
require "json"
require "sidekiq/cli"

def options_for(flags, directory)
  Sidekiq.options = Sidekiq::DEFAULTS.dup
  Dir.chdir(directory) { Sidekiq::CLI.send(:new).send(:setup_options, flags) }
  Sidekiq.options.reject { |_, value| value.is_a?(Proc) }
end

puts JSON.generate(ready: Sidekiq::VERSION)
$stdout.flush
$stdin.each_line do |line|
  question = JSON.parse(line)
  before = ENV.to_h
  begin
    %w[APP_ENV RAILS_ENV RACK_ENV RAILS_MAX_THREADS].each { |name| ENV.delete(name) }
    question["env"].each { |name, value| ENV[name] = value }
    answer = if question["erb"]
      {text: ERB.new(question["erb"], trim_mode: "-").result}
    else
      options_for(question["flags"], question["directory"])
    end
  rescue StandardError, ScriptError => error
    answer = {error: "#{error.class}: #{error.message}"}
  ensure
    ENV.replace(before)
  end
  puts JSON.generate(answer)
  $stdout.flush
end
