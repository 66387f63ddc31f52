"""Features above open-source Sidekiq, a folder each, written against `sidekiq_py.extension`; none imports another."""
