"""
Decides who may see the dashboard and who may act on it.

The dashboard is closed by default. These give a visitor access, in this order: a bearer token, a session (of someone
who has signed in with an account or a token), and the host program's callable. If none of them is set up, every request
is rejected. The exception is `sidekiq-py web` on a loopback address, which serves everyone on this machine.
"""

import base64
import hashlib
import hmac
import inspect
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request

from sidekiq_py.clock import now_seconds
from sidekiq_py.errors import ConfigError
from sidekiq_py.web.passwords import is_password, is_password_hash

SESSION_SECONDS = 12 * 3600
SESSION_COOKIE = "sidekiq_py_session"
FORM_COOKIE = "sidekiq_py_form"
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
_LOOPBACK_ADDRESSES = frozenset({"127.0.0.1", "::1"})
# A proxy that passes a request on adds one of these headers.
_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
# A name or an address, and a port. `localhost:80@evil.example` is neither.
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::[0-9]*)?")
_LEAST_TOKEN = 16


class Role(StrEnum):
    """What a user may do."""

    VIEWER = "viewer"
    """View everything."""
    OPERATOR = "operator"
    """View and act: retry, delete, pause, stop."""


class Need(StrEnum):
    """The permission that a page or an action requires."""

    VIEW = "view"
    OPERATE = "operate"
    EDIT = "edit"


@dataclass(frozen=True, slots=True)
class User:
    """
    Someone who has access.

    Args:
        name: The name in the audit log.
        role: `Role.VIEWER` or `Role.OPERATOR`, or their text.
        may_edit: True for an operator who may also edit a job and enqueue the copy, which amounts to running any
            declared job with any arguments.

    Raises:
        ConfigError: There is no such role.
    """

    name: str
    role: Role | str = Role.VIEWER
    may_edit: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", _role(self.role))

    def may(self, need: Need) -> bool:
        """True if this user has the permission *need*."""
        if need is Need.VIEW:
            return True
        is_operator = self.role is Role.OPERATOR
        return is_operator and (need is Need.OPERATE or self.may_edit)


@dataclass(frozen=True, slots=True)
class Account:
    """
    A user who signs in with a password.

    Args:
        password_hash: The hash that `sidekiq-py web --hash-password` prints or `hash_password` returns.
        role: As for `User`.
        may_edit: As for `User`.

    Raises:
        ConfigError: The hash is not valid, for example a plain password, or there is no such role.
    """

    password_hash: str
    role: Role | str = Role.VIEWER
    may_edit: bool = False

    def __post_init__(self) -> None:
        if not is_password_hash(self.password_hash):
            raise ConfigError("password_hash is not a hash; make one with `sidekiq-py web --hash-password`")
        object.__setattr__(self, "role", _role(self.role))


Authorize = Callable[[Any], Any]
"""Takes the host program's request; returns a `User`, a role's name, or None to deny access. May be an `async def`."""


class Refusal(NamedTuple):
    """
    Why a request was denied.

    Args:
        status: 401 if signing in would help, else 403.
        title: A few words.
        advice: What to do about it.
    """

    status: int
    title: str
    advice: str


_CLOSED = Refusal(
    403,
    "This dashboard is closed",
    "No one has access yet, because no access rules are set up. Pass `accounts=`, `tokens=` or `authorize=` where the "
    "dashboard is created, or run `sidekiq-py web` on this machine.",
)
_LOCAL_ONLY = (
    "Without accounts or tokens, the dashboard serves only this machine. Open it directly, or configure accounts or "
    "tokens: sidekiq-py web --config."
)
_SIGN_IN = Refusal(401, "Please sign in", "Sign in to see this page.")
_NOT_YOU = Refusal(
    403, "You have no access", "The program that serves this dashboard denied you access. Ask the people who run it."
)


class Access:
    """
    The access rules of one dashboard.

    Args:
        accounts: Name → account.
        tokens: Token → user, or a role's name. For programs (`Authorization: Bearer …`), and for signing in.
        authorize: The host program's callable.
        allowed_hosts: The values of the Host header to accept; empty accepts all. A dashboard without accounts, tokens
            and callable accepts the names of this machine, and these.
        origins: Additional origins from which forms are accepted, such as `https://ops.example.com`, for a proxy that
            changes the Host header.
        is_local: True to serve everyone on this machine: a server of our own listens on a loopback address.
    """

    def __init__(
        self,
        *,
        accounts: Mapping[str, Account] | None = None,
        tokens: Mapping[str, User | Role | str] | None = None,
        authorize: Authorize | None = None,
        allowed_hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        is_local: bool = False,
    ) -> None:
        if authorize is not None and not callable(authorize):
            raise ConfigError(f"authorize is {authorize!r}; give a function of the request")
        for name, account in (accounts or {}).items():
            if not isinstance(account, Account):
                raise ConfigError(f"the account {name} is not an Account; give Account(password_hash, role)")
        self._accounts = dict(accounts or {})
        self._tokens = {_checked_token(token): _token_user(who) for token, who in (tokens or {}).items()}
        self._authorize = authorize
        self._hosts = frozenset(host.lower() for host in allowed_hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._is_local = is_local and not self.has_rules

    @property
    def has_rules(self) -> bool:
        """True if there are accounts, tokens or a callable."""
        return bool(self._accounts or self._tokens or self._authorize)

    @property
    def has_sign_in(self) -> bool:
        """True if there are accounts or tokens to sign in with."""
        return bool(self._accounts or self._tokens)

    async def identify(self, request: Request) -> User | Refusal:
        """The user who sent *request*, or why it is denied."""
        refusal = self._refuse_distance(request) or self._refuse_host(request)
        if refusal is not None:
            return refusal
        if not self.has_rules:
            return User("local", Role.OPERATOR, may_edit=True) if self._is_local else _CLOSED
        user = self._by_bearer_token(request) or self._by_session(request)
        if user is None and self._authorize is not None:
            user = await self._ask(request)
        if user is not None:
            return user
        return _SIGN_IN if self.has_sign_in else _NOT_YOU

    def has_bearer_token(self, request: Request) -> bool:
        """True if the request has a valid bearer token. No browser adds one by itself, so no page can forge it."""
        return self._by_bearer_token(request) is not None

    def sign_in(self, name: str, secret: str) -> str | None:
        """
        Sign in.

        Args:
            name: The account's name; empty to sign in with a token.
            secret: The password, or the token.

        Returns:
            The value of the session cookie, or None if name and secret are not correct.
        """
        if not name:
            token = self._find_token(secret)
            return None if token is None else self._session("", hashlib.sha256(token.encode()).hexdigest(), token)
        account = self._accounts.get(name)
        if not is_password(secret, account.password_hash if account else None) or account is None:
            return None
        return self._session("account", name, account.password_hash)

    def is_same_origin(self, request: Request) -> bool:
        """True if the browser says that a form was sent by a page of this dashboard."""
        site = request.headers.get("sec-fetch-site")
        if site is not None and site != "same-origin":
            return False
        try:
            parts = urlsplit(request.headers.get("origin", request.headers.get("referer", "")))
        except ValueError:
            # Something like `http://[`, which no browser sends.
            return False
        if f"{parts.scheme}://{parts.netloc}".lower() in self._origins:
            return True
        return parts.scheme in ("http", "https") and parts.netloc.lower() == request.headers.get("host", "").lower()

    def _refuse_host(self, request: Request) -> Refusal | None:
        host = _bare_host(request.headers.get("host", ""))
        allowed = self._hosts | LOOPBACK_HOSTS if self._is_local else self._hosts
        if not allowed or host in allowed:
            return None
        name = "the name localhost" if self._is_local else "an allowed name"
        return Refusal(
            403,
            "This host name is not allowed",
            f"The request names a host that this dashboard does not serve. Open it under {name}, or allow this one "
            "with --allow-host or allowed_hosts=.",
        )

    def _refuse_distance(self, request: Request) -> Refusal | None:
        """Reject what does not come from this machine, if the dashboard serves everyone on it and no one else."""
        if not self._is_local:
            return None
        header = next((name for name in _PROXY_HEADERS if name in request.headers), None)
        if header is not None:
            return Refusal(
                403,
                "This request came through a proxy",
                f"It has the header {header.title()}, which proxies add. {_LOCAL_ONLY}",
            )
        addresses = [request.scope.get("client"), request.scope.get("server")]
        if all(address is not None and address[0] in _LOOPBACK_ADDRESSES for address in addresses):
            return None
        return Refusal(403, "This request came from another machine", _LOCAL_ONLY)

    def _by_bearer_token(self, request: Request) -> User | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        found = self._find_token(token.strip())
        return None if found is None else self._tokens[found]

    def _find_token(self, given: str) -> str | None:
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.encode(), given.encode(errors="replace")):
                found = token
        return found

    async def _ask(self, request: Request) -> User | None:
        asked = self._authorize(request.scope.get("sidekiq_py.request", request)) if self._authorize else None
        if inspect.isawaitable(asked):
            asked = await asked
        if asked is None or asked is False:
            return None
        if isinstance(asked, User):
            return asked
        if isinstance(asked, str):
            return User("the host program's user", _role(asked))
        raise ConfigError(f"authorize returned {asked!r}; it must return a User, 'viewer', 'operator' or None")

    def _session(self, kind: str, name: str, key: str) -> str:
        facts = json.dumps([kind, name, int(now_seconds()), secrets.token_hex(8)]).encode()
        return f"{_encode(facts)}.{_encode(_signature(facts, key))}"

    def _by_session(self, request: Request) -> User | None:
        facts, _, signature = request.cookies.get(SESSION_COOKIE, "").partition(".")
        try:
            raw, given = _decode(facts), _decode(signature)
            kind, name, began, _ = json.loads(raw)
        except (ValueError, TypeError, RecursionError):
            return None
        if not isinstance(name, str) or type(began) is not int:
            return None
        if not 0 <= now_seconds() - began < SESSION_SECONDS:
            return None
        key, user = self._key_and_user(kind, name)
        # The key is the account's hash or the token, so changing it ends all sessions that were opened with it.
        if key is None or not hmac.compare_digest(_signature(raw, key), given):
            return None
        return user

    def _key_and_user(self, kind: Any, name: str) -> tuple[str | None, User | None]:
        if kind == "account" and name in self._accounts:
            account = self._accounts[name]
            return account.password_hash, User(name, account.role, account.may_edit)
        for token, user in self._tokens.items():
            if kind == "" and hmac.compare_digest(
                hashlib.sha256(token.encode()).hexdigest().encode(), name.encode(errors="replace")
            ):
                return token, user
        return None, None


def new_form_token() -> str:
    """Make a value for the cookie that every form must repeat."""
    return secrets.token_urlsafe(32)


def is_form_token(cookie: str, given: str) -> bool:
    """True if a form repeats the value of the cookie."""
    return len(cookie) >= 32 and hmac.compare_digest(cookie.encode(), given.encode(errors="replace"))


def _role(text: Role | str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a role; the roles are viewer and operator") from None


def _checked_token(token: str) -> str:
    if len(token) < _LEAST_TOKEN:
        raise ConfigError(
            f"a token has {len(token)} characters; use at least {_LEAST_TOKEN}, for example from "
            "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return token


def _token_user(who: User | Role | str) -> User:
    return who if isinstance(who, User) else User(f"token ({_role(who)})", _role(who))


def _bare_host(host: str) -> str:
    """A Host header without its port, in lower case; empty if it is malformed."""
    found = _HOST_AND_PORT.fullmatch(host.lower())
    return found[1] if found else ""


def _signature(facts: bytes, key: str) -> bytes:
    return hmac.digest(hashlib.sha256(b"sidekiq_py session " + key.encode()).digest(), facts, "sha256")


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
