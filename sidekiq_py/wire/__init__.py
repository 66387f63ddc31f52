"""
The wire format: converts values to bytes and back, and names the keys.

No socket, no clock, no random numbers. May only import `errors`.
"""
