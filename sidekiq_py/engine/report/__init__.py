"""A worker's reports: log lines, log files, systemd."""
