"""
`sidekiq-py demo`: shows Python and real Ruby on one private Redis, step by step, with the bytes.

A step does something, waits until the effect shows (in Redis, or in the other program's output), and prints it. The
demo exits with code 0 only if every step was verified. Without Ruby, it plays recordings of real Ruby instead.

May import the client, the data API and `embedded`. Workers are started as separate programs, as a user would.
"""
