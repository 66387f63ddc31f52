"""Decides whether a task may start now: revokes and rate limits."""
