"""The exit codes of docs/command_line.md that click does not have."""

COULD_NOT = 1
"""Part of the request could not be done."""
STOPPED = 130
"""The user pressed Ctrl-C."""
