"""What the shop does in the background."""

from sidekiq_celery import Task, chord, shared_task
from sidekiq_celery.utils.log import get_task_logger

from shop.books import CardTerminal, TerminalBusyError, note

logger = get_task_logger(__name__)


class TerminalTask(Task):
    """Keeps one terminal per process, and records failures in the books."""

    abstract = True
    _terminal = None

    @property
    def terminal(self):
        if self._terminal is None:
            self._terminal = CardTerminal()
        return self._terminal

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        note("failed", f"{self.name} {args}: {exc}")


@shared_task(
    bind=True, base=TerminalTask, autoretry_for=(TerminalBusyError,), retry_kwargs={"max_retries": 3, "countdown": 1}
)
def charge(self, order, cents):
    """Charge a card. The terminal is busy on the first attempt, so the task is retried."""
    receipt = self.terminal.charge(order, cents, attempt=self.request.retries + 1)
    logger.info("charged %s for %s", cents, order)
    return receipt


@shared_task(bind=True, base=TerminalTask, throws=(ValueError,))
def refund(self, order, cents):
    """Refund a payment; fails if nothing was paid."""
    if cents <= 0:
        raise ValueError(f"nothing was paid for {order}")
    return f"{cents} back for {order}"


@shared_task
def pack(article, count):
    """Pack one article of an order; many can be packed at the same time."""
    return f"{count} x {article}"


@shared_task
def hand_over(parcels, order):
    """Ship everything that was packed together."""
    note("shipped", f"{order}: {', '.join(parcels)}")
    return len(parcels)


@shared_task(ignore_result=True)
def send_mail(result, order, text):
    """The last step of a chain. Its own queue keeps it from waiting behind parcels."""
    note("mails", f"{order}: {text} ({result})")


@shared_task
def ship(order, articles):
    """Pack all articles in parallel, then hand them over."""
    header = [pack.s(article, count) for article, count in articles]
    chord(header)(hand_over.s(order) | send_mail.s(order, "your parcel is on its way"))


@shared_task
def count_stock():
    """Run by beat every second."""
    note("stock", "counted")


@shared_task
def close_books():
    """Run by beat at night."""
    note("books", "closed")
