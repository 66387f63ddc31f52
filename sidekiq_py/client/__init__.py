"""
Pushing jobs: turns an item or a call into bytes, through client middleware, and sends them to Redis. May import
`program` and below.
"""
