"""One job in a sorted set: when it is due, and what can be done with it."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sidekiq_py.api.bulk import BulkResult
from sidekiq_py.api.job_record import JobRecord
from sidekiq_py.wire.payload import score_text

if TYPE_CHECKING:
    from sidekiq_py.api.job_sets import JobSet


class SortedEntry(JobRecord):
    """
    A job in a sorted set.

    Args:
        parent: The set.
        value: Its exact bytes.
        score: When it is due, or when it died, as Redis spells it: epoch s.
    """

    def __init__(self, parent: "JobSet", value: bytes, score: bytes) -> None:
        super().__init__(value)
        self.parent = parent
        self.score = float(score)

    @property
    def id(self) -> str:
        """`<score>|<jid>`, as in Ruby."""
        return f"{score_text(self.score)}|{self.jid}"

    @property
    def at(self) -> datetime:
        """When it is due; in the dead set, when it died."""
        try:
            return datetime.fromtimestamp(self.score, UTC)
        except (OverflowError, ValueError, OSError):
            return datetime.max.replace(tzinfo=UTC) if self.score > 0 else datetime.min.replace(tzinfo=UTC)

    @property
    def has_error(self) -> bool:
        """Whether it has failed."""
        return self.error_class is not None

    def delete(self) -> bool:
        """Remove it; False if it was not there any more."""
        return self.parent.delete_many([self]).moved == 1

    def retry(self) -> bool:
        """
        Put it into its queue now. This try does not count towards the limit of retries.

        It goes through the client middleware, as every push; one that stops it lets it vanish, as in Ruby.

        Returns:
            False if it was not in the set any more.

        Raises:
            PayloadError: It is not a usable job; it stays where it is.
        """
        return _one(self.parent.retry_many([self]))

    def add_to_queue(self) -> bool:
        """As `retry`, but for a scheduled job: nothing in it changes but `enqueued_at`."""
        return _one(self.parent.add_many_to_queue([self]))

    def kill(self, *, notify_failure: bool = True) -> bool:
        """
        Move it to the dead set.

        Args:
            notify_failure: Call the death handlers, with `RuntimeError("Job killed by API")`.

        Returns:
            False if it was not in the set any more.
        """
        return _one(self.parent.kill_many([self], notify_failure=notify_failure))

    def reschedule(self, at: float | datetime) -> bool:
        """
        Let it wait until *at*, an aware time or epoch s.

        Returns:
            False if it was not in the set any more.

        Source: Sidekiq 8.1.7, api.rb, `SortedEntry#reschedule`. Where the entry is not spelled as Ruby spells JSON,
        Ruby leaves it and adds a second one that runs at once; here it is moved, and spelled as Ruby would.
        """
        return self.parent.reschedule(self, at)


def _one(result: BulkResult) -> bool:
    """Whether the one entry was moved; its error, if it was refused."""
    for _, error in result.errors:
        raise error
    return result.moved == 1
