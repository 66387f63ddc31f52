#!/usr/bin/env ruby
# frozen_string_literal: true

# Records what real Sidekiq writes to Redis, one situation a file, into payloads/<sidekiq version>/.
#
#   ruby ruby_fixtures/record.rb [--into FOLDER] [--only SITUATION]
#
# It starts a Redis server of its own, or uses the empty database that REDIS_URL names. README.md describes the files.

require "optparse"
require_relative "recording/private_redis"

into = File.join(__dir__, "payloads")
only = nil
OptionParser.new do |parser|
  parser.on("--into FOLDER", "write below FOLDER instead of #{into}") { |folder| into = folder }
  parser.on("--only SITUATION", "record this one alone") { |name| only = name }
end.parse!

PrivateRedis.start

require_relative "jobs"
require_relative "recording/active_job_payloads"
require_relative "recording/failures"
require_relative "recording/frozen_world"
require_relative "recording/iterable_jobs"
require_relative "recording/measurements"
require_relative "recording/moves"
require_relative "recording/processes"
require_relative "recording/pushes"
require_relative "recording/recorder"

FrozenWorld.install
Engine.listen

recorder = Recorder.new(folder: into, only: only)
[Pushes, Failures, Moves, ActiveJobPayloads, IterableJobs, Measurements, Processes].each { |part| part.new(recorder).record }
recorder.remove_leftovers
PrivateRedis.leave_empty
abort "No situation of Sidekiq #{Sidekiq::VERSION} is named #{only}." if recorder.recorded.zero?
puts "#{recorder.recorded} situations of Sidekiq #{Sidekiq::VERSION} in #{recorder.folder}"
