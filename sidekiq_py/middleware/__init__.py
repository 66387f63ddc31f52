"""The two chains, and one run of one payload through the server's. May import `registry` and below."""
