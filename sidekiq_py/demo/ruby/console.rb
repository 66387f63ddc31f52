# frozen_string_literal: true

# Runs each line of its standard input and prints the value as JSON. It only enqueues jobs, as a Rails application does.

require "json"
require "sidekiq/api"
require_relative "jobs"

$stdout.sync = true
while (line = $stdin.gets)
  answer =
    begin
      {"value" => eval(line, TOPLEVEL_BINDING)}
    rescue StandardError, ScriptError => e
      {"error" => "#{e.class}: #{e.message}"}
    end
  puts "=> #{JSON.generate(answer)}"
end
