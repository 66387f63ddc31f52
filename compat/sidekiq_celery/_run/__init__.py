"""Running a task once, and deciding the outcome of its job."""
