"""Declares jobs and enqueues them. May import `client` and below."""
