"""Fixups adapt an app to a framework."""
