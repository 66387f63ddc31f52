"""
Commands of extensions, in Lua: what takes more than Redis's own commands, in the scripts that push and end jobs.

A verb looks first and writes then. It is given the key that its command names and the words behind it; other keys it
makes from that one's text, so that what stands before each key (a namespace) stays in front.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from sidekiq_py.errors import ConfigError
from sidekiq_py.redis_access.connection.scripts import Script

_NAME = re.compile(r"[A-Z][A-Z0-9_]*_[A-Z0-9_]+")


class Verb(NamedTuple):
    """
    One command.

    Args:
        name: Capitals with an underscore, which no command of Redis has: `BATCH_END`.
        source: A Lua table `{look = function(key, words) … end, run = function(key, words) … end}`. `look` may be
            left out; it writes nothing, and a text that it returns (`"CODE what is wrong"`) refuses the whole script.
            `run` may return anything; an error of Redis in it is the command's.
    """

    name: str
    source: str


class Verbs:
    """The verbs that this process knows, and the script that ends and pushes jobs with them."""

    def __init__(self) -> None:
        self._known: dict[str, Verb] = {}
        self._scripts: dict[str, Script] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, verbs: Iterable[Verb]) -> None:
        """
        Know these as well.

        Raises:
            ConfigError: A name cannot be one, or another verb has it.
        """
        for verb in verbs:
            if _NAME.fullmatch(verb.name) is None:
                raise ConfigError(f"{verb.name!r} cannot name a verb; use capitals and an underscore, as in ACME_LOCK")
            if self._known.setdefault(verb.name, verb) != verb:
                raise ConfigError(f"two extensions have a verb {verb.name}; give one of them another name")
            self._scripts.clear()

    def script(self, name: str = "settle") -> Script:
        """`settle.lua`, or `settle_many.lua`, with all verbs."""
        script = self._scripts.get(name)
        if script is None:
            # Sorted, so that all processes with the same extensions send the same text.
            texts = [f"VERBS.{verb} = {self._known[verb].source.strip()}" for verb in sorted(self._known)]
            script = self._scripts[name] = Script(name, placeholder=b"--@verbs", filling="\n".join(texts).encode())
        return script


verbs = Verbs()
"""Of this process."""
