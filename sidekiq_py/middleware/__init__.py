"""The client and server chains, and the run of a payload through the server chain. May import `registry` and below."""
