"""Declaring jobs, and calling them. May import `client` and below."""
