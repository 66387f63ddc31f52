"""The settings for connections to Redis."""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sidekiq_py.errors import ConfigError

# The password of a URL without a user, as Ruby's redis-client and redis-cli read it; redis-py would take it for a user.
# It is a user if a password follows: behind a colon (the user may contain an @), or in the query.
_LONE_PASSWORD = re.compile(r"^([a-z+]+://)(?=[^:/?#]+@(?![^/?#]*@))(?!.*[?&]password=)")
_IN_A_PASSWORD = "In a password, write %40 for @, %2F for /, %3A for :, %3F for ?, %23 for #, %5B for [ and %5D for ]"
# Options of redis-py whose values may contain an @.
_TEXT_OPTION = re.compile(r"[?&](?:\w*name|\w*password|ssl_\w+|host|path)=[^&#]*")
_PASSWORD_IN_QUERY = re.compile(r"([?&][^=&#]*password=)[^&#]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """
    Where Redis is and how long to wait for it.

    Args:
        url: `redis://`, `rediss://`, `unix://`, or `redis+sentinel://[:password@]host:port,host:port/service[/db]`. A
            word alone before the `@` is the password and gets a colon in front.
        socket_timeout_seconds: How long to wait for a reply; blocking commands add their own time.
        connect_timeout_seconds: How long to wait for a new connection.
        pool_size: How many idle links stay open. For awaited calls, it is also the most links that one event loop
            opens; further calls wait.
        namespace: Makes every key `<namespace>:<key>`, like the redis-namespace gem; empty for none.
        setting: What errors call the setting that has the URL.
    """

    url: str = "redis://localhost:6379/0"
    socket_timeout_seconds: float = 5.0
    connect_timeout_seconds: float = 3.0
    pool_size: int = 10
    namespace: str = ""
    setting: str = field(default="redis_url", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.namespace, str):
            raise ConfigError(f"namespace is {self.namespace!r}; it must be a string, such as 'myapp', or '' for none")
        if any("\ud800" <= letter <= "\udfff" for letter in self.namespace):
            raise ConfigError(
                f"namespace is {self.namespace!a}, which has a character that UTF-8 cannot encode; use a plain name, "
                "such as 'myapp'"
            )
        for name in ("socket_timeout_seconds", "connect_timeout_seconds"):
            seconds = getattr(self, name)
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
                raise ConfigError(f"{name} is {seconds!r}; it must be a number greater than 0")
        if isinstance(self.pool_size, bool) or not isinstance(self.pool_size, int) or self.pool_size < 0:
            raise ConfigError(f"pool_size is {self.pool_size!r}; it must be a whole number, 0 or more")
        if not isinstance(self.url, str):
            raise ConfigError(
                # Its text may have a password.
                f"{self.setting} is of the type {type(self.url).__name__}; give a URL as a string, such as "
                "'redis://host:6379/0'"
            )
        object.__setattr__(self, "url", _LONE_PASSWORD.sub(r"\1:", self.url))
        scheme = self.url.split("://", 1)[0]
        if scheme not in ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"):
            raise ConfigError(
                f"{self.as_given}; it must start with redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel://"
            )
        if _breaks_off_in_a_password(self.url):
            raise ConfigError(f"{self.as_given}; a character before the @ ends the password. {_IN_A_PASSWORD}")
        # redis-py takes database 0 in place of one that is not a number.
        if scheme in ("redis", "rediss") and not _is_database(self.url.partition("://")[2]):
            raise ConfigError(
                f"{self.as_given}; what follows the host and port must be the number of a database, "
                f"as in redis://host:6379/0. {_IN_A_PASSWORD}"
            )
        if scheme in ("redis", "rediss") and not _has_port(self.url):
            raise ConfigError(f"{self.as_given}; the port must be a number from 0 to 65535. {_IN_A_PASSWORD}")

    def __repr__(self) -> str:
        # Error trackers send the local variables of each frame as their `repr`.
        return f"<RedisSettings {place(self)}>"

    @property
    def as_given(self) -> str:
        """The setting and its URL without the password, for the start of an error."""
        return f"{self.setting} is {redact(self.url)!r}"

    @property
    def key_prefix(self) -> str:
        """The prefix of each key; empty without a namespace."""
        return f"{self.namespace}:" if self.namespace else ""


def _breaks_off_in_a_password(url: str) -> bool:
    """
    True if a `/`, `?` or `#` in a password ends the part of *url* that names the host, or a bracket makes it invalid.

    redis-py, like Ruby, takes what comes before for the host: `redis://user:12?34@host` leads to port 12 of `user`.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "@" in url
    if parts.scheme == "unix" and (not parts.netloc or "@" in parts.netloc):
        # What follows is a path.
        return False
    return "@" in _TEXT_OPTION.sub("", f"{parts.path}?{parts.query}#{parts.fragment}")


def _has_port(url: str) -> bool:
    """False if the port of *url* is not one."""
    try:
        urlsplit(url).port  # noqa: B018 - raises if it is not a number
    except ValueError:
        return False
    return True


def _is_database(address: str) -> bool:
    """True if the path of *address* is empty or a number, as redis-py reads it."""
    path = address.partition("#")[0].partition("?")[0].partition("/")[2].replace("/", "").strip()
    return path == "" or path.isdecimal()


def redact(url: str) -> str:
    """*url* without its passwords, for log lines. It may be misspelled, without a scheme for one."""
    url = _PASSWORD_IN_QUERY.sub(r"\1***", url)
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, sep, credentials = head.partition("://") if "://" in head else ("", "", head)
    user, colon, _ = credentials.partition(":")
    # A word alone may be the password; behind a scheme, `RedisSettings` gives a password a colon,
    # unless its rest ends up in the path or the query.
    is_user = (colon or sep) and (not re.search("[/?#]", user) or _TEXT_OPTION.search(user))
    return f"{scheme}{sep}{user if is_user else ''}:***@{tail}"


def place(settings: RedisSettings) -> str:
    """The URL without its password, followed by `#` and the namespace, as Ruby's Web UI shows it."""
    return redact(settings.url) + (f"#{settings.namespace}" if settings.namespace else "")
