"""
A Python program that enqueues jobs for the Ruby workers of a Rails application.

    python enqueue.py
"""

import sidekiq_py as sidekiq

# A class of the Rails application. Python cannot see its options, so repeat them here.
SendReceipt = sidekiq.ruby_job("SendReceipt", queue="mailers", retry=5)


def main() -> None:
    """Enqueue now, for later, and many at once."""
    print("now:  ", SendReceipt.perform_async("A-1001", "ann@example.com"))
    print("later:", SendReceipt.perform_in(1, "A-1002", "bob@example.com"))
    many = [["A-1003", "cy@example.com"], ["A-1004", "di@example.com"]]
    print("many: ", *SendReceipt.set(tags=["bulk"]).perform_bulk(many))


if __name__ == "__main__":
    main()
