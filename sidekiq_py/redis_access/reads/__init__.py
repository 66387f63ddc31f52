"""What the data API and the doctor read and edit. May import `job_path` and `connection`."""
