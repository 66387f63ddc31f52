"""
Features above open-source Sidekiq, one folder each. All are written against `sidekiq_py.extension`; none imports
another.
"""
