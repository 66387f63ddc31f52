"""Whose a job is: owner, lease, and recovery of what a dead owner had."""
