"""
Commands of extensions, in Lua, for the scripts that push and settle jobs: they do what Redis's own commands cannot.

A verb checks first and then writes. It receives the key that its command names and the words after it. It derives other
keys from that key, so that a prefix (a namespace) is kept.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from sidekiq_py.errors import ConfigError
from sidekiq_py.redis_access.connection.scripts import Script, text_of

_NAME = re.compile(r"[A-Z][A-Z0-9_]*_[A-Z0-9_]+")


class Verb(NamedTuple):
    """
    One command.

    Args:
        name: Capitals with an underscore, which no Redis command has: `BATCH_END`.
        source: A Lua table `{look = function(key, words) … end, run = function(key, words) … end}`. `look` is optional
            and must not write; if it returns a text (`"CODE what is wrong"`), the whole script is refused. `run` may
            return anything; a Redis error in it becomes the command's error.
    """

    name: str
    source: str


class Verbs:
    """
    The verbs that this process knows, and the scripts that include them.

    Attributes:
        names: Their names; a view, which grows with them.
    """

    def __init__(self) -> None:
        self._known: dict[str, Verb] = {}
        self.names = self._known.keys()
        self._scripts: dict[str, Script] = {}

    def add(self, verbs: Iterable[Verb]) -> None:
        """
        Add verbs.

        Raises:
            ConfigError: A name is invalid, or another verb has it.
        """
        for verb in verbs:
            if _NAME.fullmatch(verb.name) is None:
                raise ConfigError(f"{verb.name!r} cannot name a verb; use capitals and an underscore, as in ACME_LOCK")
            if self._known.setdefault(verb.name, verb) != verb:
                raise ConfigError(f"two extensions have a verb {verb.name}; give one of them another name")
            # Another thread may be making a script without this verb, and keeps it where no one looks any more.
            self._scripts = {}

    def script(self, name: str = "settle") -> Script:
        """The script `settle.lua` or `settle_many.lua` with all verbs."""
        scripts = self._scripts
        script = scripts.get(name)
        if script is None:
            # Sorted, so that all processes with the same extensions send the same script.
            texts = [
                f"if name == '{verb}' then return {source.strip()}\nend"
                for verb, (_, source) in sorted(self._known.items())
            ]
            script = scripts[name] = Script.of_text(name, text_of(name).replace("--@verbs", "\n".join(texts)))
        return script


verbs = Verbs()
"""The verbs of this process."""
