# frozen_string_literal: true

# Ruby's side of sidekiq_py @@version@@, printed by `sidekiq-py ruby-support`. It needs Sidekiq 6 to 8 and nothing else.
#
# With Rails: config/initializers/sidekiq_py.rb, so that web processes have it, too
# Without it: a file that `sidekiq -r`, and each program that pushes, loads
#
# It registers itself; there is nothing to configure. Print it again when you upgrade sidekiq_py. Each process that has
# loaded it carries the label `sidekiq_py.rb`, so that `sidekiq-py doctor` can find those that have not.

require "sidekiq"

# An initializer of Rails is loaded even if something has required it before.
return if defined?(SidekiqPy::SUPPORT_VERSION)

module SidekiqPy
  SUPPORT_VERSION = "@@version@@"

  Sidekiq.configure_server do |config|
    settings = config.respond_to?(:[]=) ? config : Sidekiq.options
    settings[:labels] = [*settings[:labels], "sidekiq_py.rb"].uniq
  end
end
