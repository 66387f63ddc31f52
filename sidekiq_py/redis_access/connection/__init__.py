"""From a URL to replies: connections, links and scripts. Knows none of Sidekiq's keys."""
