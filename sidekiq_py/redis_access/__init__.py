"""
Every Redis command of the project; the redis library is imported here alone.

May import `wire` and `errors`. Foreign errors are mapped to our own at this border, once (`pool.py`).
"""
