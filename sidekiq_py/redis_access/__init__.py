"""
Every Redis command of the project. No other package imports the redis library.

May import `wire` and `errors`. The redis library's errors are mapped to our own here and nowhere else (`replies.py`).
"""
