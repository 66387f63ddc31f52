"""The only place that maps redis-py's errors to ours."""

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import redis

from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError

T = TypeVar("T")

# Error replies after which the same command may be sent again on a fresh connection: it was not executed, because the
# server is no longer the primary. Source: Sidekiq 6.4.1 and later, redis_connection.rb / config.rb.
FAILOVER_CODES = frozenset({"READONLY", "NOREPLICAS", "UNBLOCKED"})

# Redis 6.2 wraps the error of a command in a script in its own text, with or without a dash. The result of
# `redis.pcall` has only the inner text.
_WITHIN_A_SCRIPT = re.compile(
    r"(?:Error running script \(call to \w+\): @user_script:\d+: )?(?:@user_script: \d+: )?(?:-|ERR )?"
)
# Redis 7.0 adds where the command stands in the script, in all but the result of `redis.pcall`; Valkey 9 leaves out the
# digest.
_PLACE_IN_A_SCRIPT = re.compile(r" script: (?:[0-9a-f]{40}, )?on @?user_script:\d+\.$")
# A server that hangs up at once mostly does not say why. The error depends on what the client did at that moment: it
# connected, read or wrote, or asyncio knew before anything was written ("Connection lost").
_HUNG_UP_AT_ONCE = (
    "If this server uses TLS, write rediss:// in the URL; if it asks for a client's certificate, add ssl_certfile and "
    "ssl_keyfile; if it does neither, perhaps all connections that its `maxclients` allows are in use"
)
_ALL_IN_USE = (
    "All connections that its `maxclients` allows are in use: `redis-cli CLIENT LIST` shows by whom; raise it, or run "
    "fewer processes"
)
# These errors may pass without other settings: a proxy hangs up at once, too, whose Redis is not up yet.
_MAY_PASS = (_HUNG_UP_AT_ONCE, _ALL_IN_USE)
# An alert of TLS (RFC 8446, 5.1) is a record of type 21.
_ALERT_OF_TLS = r'got "\x15" as reply type byte'
# By a part of the error's text: what to do if a server was found, but no connection could be made.
_WHERE_A_SERVER_WAS_FOUND = {
    "ConnectionResetError": _HUNG_UP_AT_ONCE,
    "BrokenPipeError": _HUNG_UP_AT_ONCE,
    "Connection lost": _HUNG_UP_AT_ONCE,
    "Connection closed by server": _HUNG_UP_AT_ONCE,
    "EOF occurred in violation of protocol": _HUNG_UP_AT_ONCE,
    _ALERT_OF_TLS: "That is how a server that uses TLS answers: write rediss:// in the URL",
    "handshake operation timed out": "If this server does not use TLS, write redis:// in the URL, not rediss://",
    "max number of clients reached": _ALL_IN_USE,
    "certificate is not valid for": "Use a host name that is in the certificate, or add "
    "ssl_check_hostname=false to the URL",
    "certificate has expired": "Renew the server's certificate or its authority's; if neither has expired, set this "
    "machine's clock",
    "certificate is not yet valid": "Set this machine's clock, or wait until the certificate is valid",
    "certificate verify failed": "Name the authority that signed it in the URL (rediss://…?ssl_ca_certs=/path/ca.pem) "
    "or in SSL_CERT_FILE",
}
# Without a path: it is not a socket that is missing. redis-py 5 gives the number alone.
_A_FILE_OF_TLS_IS_MISSING = re.compile(r"connecting to [^/]+:\d+\. (?:No such file|2\.$)")
# EXEC itself was refused. Otherwise the text ends with "because of previous errors.", whose replies say more.
_WHY_EXEC_WAS_REFUSED = re.compile(r"(?:EXECABORT )?Transaction discarded because of: (?=[A-Z]+ )")
_NOT_LET_IN = (redis.exceptions.AuthenticationError, redis.exceptions.AuthenticationWrongNumberOfArgsError)
# The text of Redis and Valkey, which has no code, when an ACL forbids a command in a script.
_FORBIDDEN_WITHIN_A_SCRIPT = ("The user executing the script can't", "ACL failure in script")


def reply_error(error: redis.RedisError) -> RedisReplyError:
    """Our error for an error reply. redis-py removes the code from some of them, and Redis 6.2 puts text before it."""
    codes = {
        redis.exceptions.ReadOnlyError: "READONLY",
        redis.exceptions.NoScriptError: "NOSCRIPT",
        redis.exceptions.BusyLoadingError: "LOADING",
        redis.exceptions.OutOfMemoryError: "OOM",
        redis.exceptions.NoPermissionError: "NOPERM",
        redis.exceptions.ExecAbortError: "EXECABORT",
        redis.exceptions.AuthenticationError: "NOAUTH",
        redis.exceptions.MasterDownError: "MASTERDOWN",
    }
    code = next((code for kind, code in codes.items() if isinstance(error, kind)), None)
    return _with_code(str(error), code)


def pcall_error(text: bytes) -> RedisReplyError:
    """Our error for one that a script got from `redis.pcall` and returned as text."""
    return _with_code(text.decode(errors="replace").strip(), None)


def _with_code(text: str, code: str | None) -> RedisReplyError:
    text = _PLACE_IN_A_SCRIPT.sub("", _WITHIN_A_SCRIPT.sub("", text, count=1))
    if reason := _WHY_EXEC_WAS_REFUSED.match(text):
        return RedisReplyError(text[reason.end() :])
    if text.startswith(_FORBIDDEN_WITHIN_A_SCRIPT):
        code = "NOPERM"
    if code and not text.startswith(code):
        text = f"{code} {text}"
    return RedisReplyError(text)


def not_connected(error: Exception) -> RedisError:
    """
    The error for a connection that could not be opened: Redis does not let the user in, refuses a command, or is out of
    reach. Each comes with advice where the URL or a certificate may be the cause.
    """
    if isinstance(error, _NOT_LET_IN):
        return RedisReplyError(f"NOAUTH {str(error).rstrip('.?')}; check the user and password in the URL")
    if isinstance(error, redis.ResponseError):
        refusal = reply_error(error)
        if "DB index is out of range" in str(refusal):
            return RedisReplyError(f"{refusal}; the URL ends with the number of a database that this server lacks")
        return refusal
    text = f"Redis is out of reach: {error}"
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLError) and str(cause) not in text:
        # In `async` code, redis-py 5.0 only says "Error 1 connecting to localhost:6379. 1."
        text = f"{text.rstrip('.')}: {cause}"
    if "Protocol error" in text and _ALERT_OF_TLS not in text:
        text = f"{text}; what answers there is not Redis"
    said = f"{text} {type(cause).__name__} {cause}"
    advice = next((advice for sign, advice in _WHERE_A_SERVER_WAS_FOUND.items() if sign in said), None)
    if advice is None and (isinstance(cause, ssl.SSLError) or _A_FILE_OF_TLS_IS_MISSING.search(text)):
        advice = "Check ssl_ca_certs, ssl_certfile and ssl_keyfile in the URL"
    if advice is None:
        return RedisConnectionError(text)
    return RedisConnectionError(
        f"{text.rstrip('.')}. {advice}", is_advised=True, is_about_settings=advice not in _MAY_PASS
    )


def raise_first(replies: list[Any]) -> list[Any]:
    """Return *replies*, or raise the first error among them."""
    for reply in replies:
        if isinstance(reply, RedisReplyError):
            raise reply
    return replies


def of_transaction(replies: list[Any]) -> list[Any]:
    """Return the reply to EXEC, or raise the first error in it."""
    for reply in replies:
        if isinstance(reply, redis.RedisError):
            raise reply_error(reply)
    return replies


def well_typed(replies: Sequence[Any]) -> list[Any]:
    """
    *replies*, with None in place of a key of the wrong type. Other errors are raised: a key that this user may not read
    may hold anything.
    """
    return _without(replies, lambda error: error.code == "WRONGTYPE")


def readable(replies: Sequence[Any]) -> list[Any]:
    """*replies*, with None in place of an error that concerns only one key. Other errors are raised."""
    return _without(replies, lambda error: not error.is_about_server)


def _without(replies: Sequence[Any], is_left_out: Callable[[RedisReplyError], bool]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, RedisReplyError) and not is_left_out(reply):
            raise reply
    return [None if isinstance(reply, RedisReplyError) else reply for reply in replies]


def pairs(flat: Sequence[T]) -> list[tuple[T, T]]:
    """The fields and values, or members and scores, of a reply in which they alternate."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def flat(fields: Mapping[str, T]) -> list[str | T]:
    """The opposite of `pairs`: fields and values in turn, as HSET takes them."""
    return [word for pair in fields.items() for word in pair]


def epoch_seconds(time: Sequence[bytes]) -> float:
    """The reply to TIME, in seconds since the epoch."""
    seconds, microseconds = time
    return int(seconds) + int(microseconds) / 1e6


def name_in(raw: bytes) -> str:
    """A name as text. Bytes that are not UTF-8, which another program wrote, are the same again when it is sent."""
    return raw.decode(errors="surrogateescape")


def texts(flat: Sequence[bytes]) -> dict[str, str]:
    """A hash as text, whatever other programs have written to it."""
    return {field.decode(errors="replace"): value.decode(errors="replace") for field, value in pairs(flat)}
