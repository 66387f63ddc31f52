"""Which process owns a job: owners, their leases, and the recovery of a dead owner's jobs."""
