"""The contents of a task's payload, and encoding the values in it."""
