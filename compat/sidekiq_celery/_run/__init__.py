"""One run of a task, and how it ends as a job."""
