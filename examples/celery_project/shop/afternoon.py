"""An afternoon in the shop: runs some tasks and prints their results."""

import time

from celery import chain, group

from shop.books import read
from shop.celery import app
from shop.tasks import charge, refund, send_mail, ship


def main():
    app.set_default()
    paid = chain(charge.s("A-1", 1999), send_mail.s("A-1", "thank you"))()
    print("the card:", paid.parent.get(timeout=60))

    several = group(charge.s(f"B-{number}", number * 100) for number in range(1, 4))()
    print("three more:", several.get(timeout=60))

    refused = refund.delay("C-1", 0)
    print("a refund:", repr(refused.get(timeout=60, propagate=False)), refused.state)

    ship.delay("A-1", [("tea", 2), ("pots", 1), ("cups", 6)])
    later = charge.apply_async(("D-1", 5), countdown=1)
    print("a late one:", later.get(timeout=60))

    for page, count in (("mails", 2), ("shipped", 1), ("failed", 1), ("stock", 1)):
        print(f"{page}:", sorted(set(wait_for(page, count))))


def wait_for(page, count):
    """Wait for lines in the books, which are written a moment later."""
    deadline = time.monotonic() + 60
    while len(read(page)) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    return read(page)


if __name__ == "__main__":
    main()
