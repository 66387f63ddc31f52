"""
What the bytes mean: values to bytes and back, and the names of keys.

No socket, no clock, no random draw. May import `errors` alone.
"""
