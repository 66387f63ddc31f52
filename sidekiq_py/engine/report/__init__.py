"""What a worker says: log lines, log files, systemd."""
