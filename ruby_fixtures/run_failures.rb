#!/usr/bin/env ruby
# frozen_string_literal: true

# Runs payloads through this release's own fetch and retry code, one after another on an empty database, with the clock and
# the jitter of a recording:
#
#   ruby ruby_fixtures/run_failures.rb < PAYLOADS > OUTCOMES
#
# A line of JSON each way: a payload's text as a string; {"now", "error", "retry", "dead", "deaths"}, the sets as pairs of
# member and score. Redis as for `record.rb`.

require_relative "recording/private_redis"
PrivateRedis.start

require "json"
require_relative "recording/classes"
require_relative "recording/engine"
require_relative "recording/frozen_world"

FrozenWorld.install
Engine.listen
link = PrivateRedis.link

$stdin.each_line do |line|
  FrozenWorld.reset
  link.call("FLUSHDB")
  link.call("LPUSH", "queue:default", JSON.parse("[#{line}]").first)
  run = Engine.run_next("default").to_h
  sets = %w[retry dead].to_h { |name| [name, link.call("ZRANGE", name, 0, -1, "WITHSCORES").each_slice(2).to_a] }
  puts JSON.generate({"now" => run["now"], "error" => run["error"], "deaths" => link.call("LLEN", "fixture:deaths")}.merge(sets))
end
PrivateRedis.leave_empty
