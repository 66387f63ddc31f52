"""Python and Ruby processes share one Redis through Sidekiq. The public names are re-exported here."""
