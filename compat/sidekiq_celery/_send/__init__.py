"""Turning a call into a job in Redis."""
