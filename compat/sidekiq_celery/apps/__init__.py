"""What runs as a program of its own."""
