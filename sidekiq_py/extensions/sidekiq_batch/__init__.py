"""
Jobs of the gem sidekiq-batch: Python runs them, and ends them in Redis as the gem would.

`extension` has the hooks; what an end writes is all in `lua/sidekiq_batch.lua`, and rides in the script that
ends the job. Batches are opened, and their callbacks run, in Ruby alone.
"""
