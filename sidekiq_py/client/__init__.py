"""
Putting work in: an item or a call to bytes, through client middleware, into Redis. May import `program` and below.
"""
