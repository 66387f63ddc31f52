# frozen_string_literal: true

# Stands in for the gem cronex, which sidekiq-cron asks for a schedule in words to show on its page.
module Cronex
  class ExpressionDescriptor
    attr_reader :description

    def initialize(expression, *)
      @description = expression
    end
  end
end
