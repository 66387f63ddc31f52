"""
`sidekiq-py demo`: Python and real Ruby on one private Redis, step by step, with the bytes.

A step does something, waits until the fact is seen (in Redis, or in what the other program prints), and shows it. Only
if every step was seen does the demo end with exit code 0. Without Ruby, recordings of real Ruby are played instead.

May import the client, the data API and `embedded`; workers are started as programs of their own, as anybody would.
"""
