"""Signatures and canvas, and the effects of a task's end."""
