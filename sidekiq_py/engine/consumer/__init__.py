"""Delivers jobs to another library's consumer, as the kombu transport does, and settles them when it says so."""
