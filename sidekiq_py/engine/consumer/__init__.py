"""Jobs that are handed to somebody else's consumer, as by the kombu transport, and settled when it says so."""
