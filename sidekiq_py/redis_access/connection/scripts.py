"""
The Lua scripts, one per file in `lua/`. The head of each names KEYS, ARGV and the reply. Code that several scripts
share is in `lua/parts/`; the line `--@part name` includes it.

A script is called by its digest. If the server does not know it (after a restart, flush or failover), the text is sent.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.replies import raise_first

_FOLDER = Path(__file__).parents[1] / "lua"
_PART = re.compile(r"^--@part (\w+)\n", re.MULTILINE)


class Script:
    """
    One Lua script.

    Args:
        name: The name of the file in `lua/`, without its extension.
        text: Its text; None reads the file.
    """

    __slots__ = ("digest", "name", "text")

    def __init__(self, name: str, text: str | None = None) -> None:
        self.name = name
        self.text = (text_of(name) if text is None else text).encode()
        self.digest = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()

    @classmethod
    def of_text(cls, name: str, text: str) -> Self:
        """A script that is not in `lua/`: an extension's."""
        return cls(name, text)

    def __repr__(self) -> str:
        return f"<Script {self.name}>"

    def call(self, keys: Sequence[str | bytes], arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The command that runs it by digest."""
        return ("EVALSHA", self.digest, len(keys), *keys, *arguments)

    def full_call(self, keys: Sequence[str | bytes], arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The command that sends its text along."""
        return ("EVAL", self.text, len(keys), *keys, *arguments)

    def run(self, link: Link, keys: Sequence[str | bytes], arguments: Sequence[Any]) -> Any:
        """
        Run the script; if the server does not know it, send the text.

        Raises:
            RedisError: As `Link.command` does.
        """
        try:
            return link.command(*self.call(keys, arguments))
        except RedisReplyError as error:
            if error.code != "NOSCRIPT":
                raise
            return link.command(*self.full_call(keys, arguments))

    def run_all(self, link: Link, calls: Sequence[tuple[Sequence[str | bytes], Sequence[Any]]]) -> list[Any]:
        """
        Run the script once for each pair of keys and arguments, in one round trip, or in two if the server does not
        know it.

        Raises:
            RedisError: As `run`, for the first that failed. The others ran anyway.
        """
        return raise_first(self.replies(link, calls))

    def replies(self, link: Link, calls: Sequence[tuple[Sequence[str | bytes], Sequence[Any]]]) -> list[Any]:
        """Like `run_all`, but with the errors among the replies."""
        replies = link.batch([self.call(*call) for call in calls])
        unknown = [at for at, reply in enumerate(replies) if is_unknown(reply)]
        if unknown:
            texts = [(self.call if at else self.full_call)(*calls[index]) for at, index in enumerate(unknown)]
            for index, reply in zip(unknown, link.batch(texts), strict=True):
                replies[index] = reply
        return replies


def text_of(name: str) -> str:
    """The text of a script in `lua/`, with its parts."""
    text = (_FOLDER / f"{name}.lua").read_text("utf-8")
    return _PART.sub(lambda part: (_FOLDER / "parts" / f"{part[1]}.lua").read_text("utf-8"), text)


def is_unknown(reply: Any) -> bool:
    """True if the server answered that it does not know the script."""
    return isinstance(reply, RedisReplyError) and reply.code == "NOSCRIPT"
