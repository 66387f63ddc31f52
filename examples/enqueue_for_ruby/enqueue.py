"""
A Python program enqueues, and the Ruby workers of a Rails application run it.

    python enqueue.py
"""

import sidekiq_py as sidekiq

# A class of the Rails application. Its options cannot be seen from here, so they are repeated.
SendReceipt = sidekiq.ruby_job("SendReceipt", queue="mailers", retry=5)


def main() -> None:
    """Enqueue now, for later, and many at once."""
    print("now:  ", SendReceipt.perform_async("A-1001", "ann@example.com"))
    print("later:", SendReceipt.perform_in(1, "A-1002", "bob@example.com"))
    many = [["A-1003", "cy@example.com"], ["A-1004", "di@example.com"]]
    print("many: ", *SendReceipt.set(tags=["bulk"]).perform_bulk(many))


if __name__ == "__main__":
    main()
