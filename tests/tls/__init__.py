"""Servers reached by TLS."""
