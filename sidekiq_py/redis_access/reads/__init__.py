"""Reads and edits of the data API and the doctor. May import `job_path` and `connection`."""
