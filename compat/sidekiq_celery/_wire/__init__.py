"""What a task's payload says, and the values in it."""
