"""A worker's reports: log lines, log files, the standard streams, systemd."""
