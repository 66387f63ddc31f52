"""Fix-ups: what frameworks need of an app."""
