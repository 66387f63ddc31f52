"""
Jobs of the gem sidekiq-batch: Python runs them and settles them in Redis as the gem would.

`extension` has the hooks. Everything written when a job ends is in `lua/sidekiq_batch.lua`, which runs as part of the
script that settles the job. Only Ruby opens batches and runs their callbacks.
"""
