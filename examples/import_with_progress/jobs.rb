# frozen_string_literal: true

# The same job in Ruby. If a worker serves it, the import gives every other row to Ruby:
#
#     sidekiq-py ruby-support > sidekiq_py.rb
#     sidekiq -r ./jobs.rb -q ruby_imports

require "sidekiq"
require ENV.fetch("SIDEKIQ_PY_SUPPORT", File.join(__dir__, "sidekiq_py.rb"))

COUNTRIES = ENV.fetch("COUNTRIES", File.join(__dir__, "countries.txt"))

class RubyImportRow
  # Called Sidekiq::Job since 6.3; all releases have this name.
  include Sidekiq::Worker
  sidekiq_options queue: "ruby_imports", retry: 5

  def perform(number, name, email, country)
    raise SidekiqPy::JobFailed, "row #{number} has no e-mail" unless email.include?("@")
    raise SidekiqPy::JobFailed, "row #{number}: we do not deliver to #{country}" unless File.read(COUNTRIES).split.include?(country)
    raise "row #{number} broke the code" if name == "Robert'); DROP TABLE"
  end
end
