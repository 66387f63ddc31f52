"""A whole program under a namespace."""
