"""
Real parts that the tests stand on: a Redis server of their own, worker processes, and patience.

Nothing in here imports the package under test, so that a broken import shows in the tests and not in their ground.
"""
