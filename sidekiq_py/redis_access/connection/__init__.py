"""From a URL to replies: connections, links, scripts; knows no key of Sidekiq's."""
