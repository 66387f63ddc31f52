"""Parts that run as programs of their own."""
