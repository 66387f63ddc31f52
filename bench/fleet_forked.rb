# Many real Sidekiqs, each a process of its own, forked from one that has loaded all they need:
#
#   ruby bench/fleet_forked.rb 20 -r bench/jobs.rb -c 5
#
# Each child does what Sidekiq's own executable does, so it has an identity and connections of its own. TERM stops all.
require "fiddle"
require "sidekiq"
require "sidekiq/cli"
require_relative "jobs"

PR_SET_PDEATHSIG = 1

count = ARGV.shift.to_i
Process.warmup if Process.respond_to?(:warmup)
# Done once above: in each child it would copy every page that it shares with its parent.
ENV["RUBY_DISABLE_WARMUP"] = "1"
prctl = Fiddle::Function.new(Fiddle::Handle::DEFAULT["prctl"], [Fiddle::TYPE_INT, Fiddle::TYPE_LONG], Fiddle::TYPE_INT)
children = Array.new(count) do
  fork do
    prctl.call(PR_SET_PDEATHSIG, Signal.list.fetch("KILL"))
    cli = Sidekiq::CLI.instance
    cli.parse(ARGV.dup)
    cli.run
  end
end
trap("TERM") { children.each { |child| Process.kill("TERM", child) rescue Errno::ESRCH } }
children.each { |child| Process.wait(child) }
