"""Active Job both ways, with real Ruby at the other end where it is installed."""
