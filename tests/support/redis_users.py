"""The Redis users of docs/redis.md, made by the very lines that stand there."""

import re
import shlex
from dataclasses import dataclass

import redis

from tests.support.redis_server import RedisServer
from tests.support.worker_process import REPOSITORY

PASSWORD = "a-password"
# What is asked and may be refused, as the page says; Redis 6.2 logs no more than the command's first word.
TAKEN_FOR_AN_ANSWER = frozenset({"info", "config", "config|get", "client", "client|setinfo"})


def documented_users() -> dict[str, list[str]]:
    """The rules of each user, by its name."""
    page = (REPOSITORY / "docs" / "redis.md").read_text()
    blocks = re.findall(r"^```sh\nredis-cli (ACL SETUSER .*?)^```", page, re.MULTILINE | re.DOTALL)
    words = [shlex.split(block.replace("\\\n", " ")) for block in blocks]
    return {name: rules for _, _, name, *rules in words}


def rights_on_top(of_whom: str) -> list[str]:
    """
    What the page gives on top.

    Args:
        of_whom: How its item of the list begins.
    """
    page = (REPOSITORY / "docs" / "redis.md").read_text()
    [item] = re.findall(rf"^- {re.escape(of_whom)}.*?(?=^- |^$)", page, re.MULTILINE | re.DOTALL)
    return [word for rules in re.findall(r"`([~&+][^`]*)`", item) for word in rules.split()]


@dataclass(frozen=True, slots=True)
class Users:
    """
    The users on a server.

    Args:
        admin: A client that may do everything.
    """

    server: RedisServer
    admin: redis.Redis

    def create(self) -> None:
        """Empty the server, make the users anew, and forget what was refused so far."""
        self.admin.flushall()
        for name, rules in documented_users().items():
            self.admin.execute_command("ACL", "SETUSER", name, "reset", *rules)
        self.admin.execute_command("ACL", "LOG", "RESET")

    def give(self, name: str, rights: list[str]) -> None:
        """More rights for a user; on Redis 6.2 with full rights to the keys that it may only read elsewhere."""
        if self.admin.info("server")["redis_version"].startswith("6."):
            rights = [right.replace("%R~", "~") for right in rights]
        self.admin.execute_command("ACL", "SETUSER", name, *rights)

    def url(self, name: str) -> str:
        """Where a user connects."""
        return self.server.url.replace("redis://", f"redis://{name}:{PASSWORD}@")

    def refusals(self) -> list[tuple[str, str, str, str]]:
        """User, reason, command or key, and context of everything that was refused and is not on the page."""
        with self.server.client(decode_responses=True) as client:
            entries = client.acl_log()
        return [
            (entry["username"], entry["reason"], entry["object"], entry["context"])
            for entry in entries
            if not (entry["reason"] == "command" and entry["object"].lower() in TAKEN_FOR_AN_ANSWER)
        ]
