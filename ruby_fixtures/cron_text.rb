# frozen_string_literal: true

# What fugit says of cron texts. Reads a line of JSON for each, {"cron": text, "at": [epoch seconds, …], "next": n, "from": epoch second},
# and answers with a line: {"previous": [the tick before each], "next": [the n ticks after `from`]}, or {"refused": why}. "at" may be a
# triple [first, step, count] under "every".

require "json"
require "fugit"

ENV["TZ"] = "UTC"

# It looks for each of 600 zones in a text, a millisecond long, and is asked hundreds of times for the same first of a month.
module KnownZones
  def extract_zone(text)
    (@known_zones ||= {})[text] ||= super
  end
end
EtOrbi.singleton_class.prepend(KnownZones)

def told(wanted)
  cron = Fugit.do_parse(wanted["cron"])
  return {refused: cron.class.name} unless cron.is_a?(Fugit::Cron)

  first, step, count = wanted["every"]
  moments = wanted["at"] || Array.new(count) { |i| first + i * step }
  previous = moments.map do |at|
    cron.previous_time(Time.at(at).utc).to_i
  rescue StandardError => e
    e.class.name
  end
  ticks = []
  at = wanted["from"]
  wanted["next"].to_i.times do
    at = cron.next_time(Time.at(at).utc).to_i
    ticks << at
  rescue StandardError => e
    ticks << e.class.name
    break
  end
  {cron: cron.original, previous: previous, next: ticks}
rescue StandardError => e
  {refused: e.class.name}
end

$stdout.sync = true
$stdin.each_line { |line| puts JSON.generate(told(JSON.parse(line))) }
