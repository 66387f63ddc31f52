"""Signatures and canvas, and what a task's end sets off."""
