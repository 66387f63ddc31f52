"""
The Lua scripts: one a file in `lua/`, its head naming KEYS, ARGV and reply. What several begin with or need stands in
`lua/parts/`, and a line `--@part name` brings it in.

A script is called by its digest; where the server does not know it (restarted, flushed, failed over) the text is sent.
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
_PART = re.compile(rb"^--@part (\w+)\n", re.MULTILINE)


class Script:
    """
    One script.

    Args:
        name: Of the file in `lua/`, without its ending.
        placeholder: What *filling* takes the place of in its text.
    """

    __slots__ = ("digest", "name", "text")

    def __init__(self, name: str, *, placeholder: bytes = b"", filling: bytes = b"") -> None:
        self.name = name
        text = (_FOLDER / f"{name}.lua").read_bytes().replace(placeholder, filling or placeholder)
        self.text = _PART.sub(lambda part: (_FOLDER / "parts" / f"{part[1].decode()}.lua").read_bytes(), text)
        self.digest = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()

    @classmethod
    def of_text(cls, name: str, text: str) -> Self:
        """A script that lies elsewhere: an extension's."""
        script = cls.__new__(cls)
        script.name = name
        script.text = text.encode()
        script.digest = hashlib.sha1(script.text, usedforsecurity=False).hexdigest().encode()
        return script

    def __repr__(self) -> str:
        return f"<Script {self.name}>"

    def call(self, keys: Sequence[str | bytes], arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The command that runs it by digest."""
        return ("EVALSHA", self.digest, len(keys), *keys, *arguments)

    def full_call(self, keys: Sequence[str | bytes], arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The command that brings its text along."""
        return ("EVAL", self.text, len(keys), *keys, *arguments)

    def run(self, link: Link, keys: Sequence[str | bytes], arguments: Sequence[Any]) -> Any:
        """
        Run it; the text is sent if the server does not know it.

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
        Run it once for each pair of keys and arguments, in one round trip; in two if the server does not know it.

        Raises:
            RedisError: As `run`, for the first that failed; the others were run all the same.
        """
        replies = link.batch([self.call(*call) for call in calls])
        unknown = [at for at, reply in enumerate(replies) if _is_unknown(reply)]
        if unknown:
            texts = [(self.call if at else self.full_call)(*calls[index]) for at, index in enumerate(unknown)]
            for index, reply in zip(unknown, link.batch(texts), strict=True):
                replies[index] = reply
        return raise_first(replies)


def _is_unknown(reply: Any) -> bool:
    return isinstance(reply, RedisReplyError) and reply.code == "NOSCRIPT"
