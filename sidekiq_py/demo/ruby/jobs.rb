# frozen_string_literal: true

# The Ruby side of the demo, as it would be in a Rails application.

require "sidekiq"

DEMO_JOB = defined?(Sidekiq::Job) ? Sidekiq::Job : Sidekiq::Worker

# redis-rb 4.8 prints a warning for each SADD by Sidekiq 6.4.1.
if defined?(Redis) && Redis.respond_to?(:silence_deprecations=)
  Redis.silence_deprecations = true
  Redis.sadd_returns_boolean = false
end

# Printed by `sidekiq-py ruby-support`.
require File.join(ENV.fetch("SIDEKIQ_DEMO_FOLDER"), "sidekiq_py.rb")

class MailServerDown < StandardError; end

# Runs in Ruby.
class SendReceipt
  include DEMO_JOB
  sidekiq_options queue: "mailers"

  def perform(order, email)
    if File.exist?(File.join(ENV.fetch("SIDEKIQ_DEMO_FOLDER"), "mail_server_down"))
      raise MailServerDown, "mail.example.com does not answer"
    end

    logger.info { "receipt for #{order} sent to #{email}" }
  end
end

# Runs in Python; Ruby knows its name and its queue, and enqueues it.
class FraudCheck
  include DEMO_JOB
  sidekiq_options queue: "python"
end
