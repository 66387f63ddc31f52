"""Django."""
