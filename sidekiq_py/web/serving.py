"""
What `sidekiq-py web` serves: the dashboard that a settings file describes.
"""

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn
import yaml

from sidekiq_py.errors import ConfigError
from sidekiq_py.redaction import Redaction
from sidekiq_py.web.access import Access, Account, User
from sidekiq_py.web.application import Dashboard
from sidekiq_py.web.site import Site
from sidekiq_py.web.text import shortened

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SETTINGS = ("accounts", "tokens", "allowed_hosts", "origins", "servers", "redaction", "title", "trace_url")
_LEAVE_SECONDS = 2
_ALIAS_OR_TAG = re.compile(r"(undefined alias|for the tag) .*", re.DOTALL)


def dashboard(config_file: Path | None, bind: str, allow_host: Sequence[str]) -> Dashboard:
    """
    The dashboard with the settings of a file.

    Args:
        config_file: A YAML file; None for no settings.
        bind: The address to listen on, which decides who has access without accounts and tokens.
        allow_host: Further names that requests may use for this host.

    Raises:
        ConfigError: A setting is invalid, or nobody could be kept out.
    """
    settings = _settings(config_file)
    is_local = bind in _LOOPBACK
    access = Access(
        accounts=_accounts(settings.get("accounts")),
        tokens=_tokens(settings.get("tokens")),
        allowed_hosts=(*_texts(settings, "allowed_hosts"), *allow_host),
        origins=_texts(settings, "origins"),
        is_local=is_local,
    )
    if not access.has_rules and not is_local:
        raise ConfigError(
            f"the dashboard would listen on {bind} without knowing whom to let in; configure accounts or tokens in "
            "--config, or leave --bind at 127.0.0.1"
        )
    hidden = settings.get("redaction")
    site = Site(
        access,
        servers=_servers(settings.get("servers")),
        redaction=None if hidden is None else Redaction.of_settings(hidden, "redaction"),
        title=str(settings.get("title", "Sidekiq")),
        trace_url=str(settings.get("trace_url", "")),
    )
    return Dashboard(site)


class Server(uvicorn.Server):
    """A server of a dashboard. It ends open streams when it stops, for which uvicorn would wait in vain."""

    def __init__(self, application: Dashboard, bind: str, port: int) -> None:
        self._application = application
        super().__init__(
            uvicorn.Config(
                application,
                host=bind,
                port=port,
                log_level="warning",
                # Do not reveal the server software. Trust proxy headers only if there are access rules: without them,
                # the dashboard rejects requests that came through a proxy.
                server_header=False,
                proxy_headers=application.site.access.has_rules,
                timeout_graceful_shutdown=_LEAVE_SECONDS,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, and then all else."""
        self._application.end_streams()
        await super().shutdown(sockets)


def listen(bind: str, port: int) -> socket.socket:
    """
    A socket that listens.

    Raises:
        ConfigError: The address cannot be used.
    """
    # uvicorn's own call would log "[Errno 98]" without the port, and exit with 3.
    is_ipv6 = ":" in bind
    try:
        return socket.create_server(
            (bind, port),
            family=socket.AF_INET6 if is_ipv6 else socket.AF_INET,
            dualstack_ipv6=is_ipv6 and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        # Python adds the address, which stands here already.
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise ConfigError(
            f"the dashboard cannot listen on {bind}, port {port}: {reason}; give a free port, as in --port 4568, or 0 "
            "for any, and with --bind an address of this machine"
        ) from error


def _settings(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        settings = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {_reason(error)}") from error
    except (ValueError, KeyError, AttributeError):
        # Of `!!int x` or 2026-99-99, whose error quotes the value, which may be a token.
        problem = "a value does not fit its tag, or looks like a date and is none; put quotes around it"
        raise ConfigError(f"{path} cannot be read as YAML: {problem}") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"{path} must be a YAML mapping with {', '.join(_SETTINGS)}")
    unknown = [shortened(str(name), 40) for name in settings if name not in _SETTINGS]
    if unknown:
        # If this is another kind of file, these are its lines.
        named = ", ".join(unknown[:3]) + (f" and {len(unknown) - 3} more" if len(unknown) > 3 else "")
        raise ConfigError(f"{path} has unknown settings: {named}; the settings are {', '.join(_SETTINGS)}")
    return settings


def _reason(error: Exception) -> str:
    # The whole text of the error quotes the line, which may hold a token.
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        # YAML takes a token that begins with * or ! for an alias or a tag, and names that.
        problem = _ALIAS_OR_TAG.sub(r"\1; put quotes around what begins with * or !", str(error.problem))
        return f"line {error.problem_mark.line + 1}: {problem}"
    return str(error)


def _accounts(given: Any) -> dict[str, Account]:
    accounts = {}
    for name, about in _mapping(given, "accounts").items():
        known = ("password_hash", "role", "may_edit")
        if not isinstance(about, dict) or set(about) - set(known) or not isinstance(about.get("password_hash"), str):
            raise ConfigError(
                f"the account {name} must have password_hash (made by `sidekiq-py web --hash-password`), and may have "
                "role and may_edit only"
            )
        try:
            accounts[str(name)] = Account(
                about["password_hash"], about.get("role", "viewer"), may_edit=about.get("may_edit") is True
            )
        except ConfigError as error:
            raise ConfigError(f"the account {name}: {error}") from None
    return accounts


def _tokens(given: Any) -> dict[str, User | str]:
    tokens: dict[str, User | str] = {}
    for token, who in _mapping(given, "tokens").items():
        if isinstance(who, str):
            tokens[str(token)] = who
        elif isinstance(who, dict) and set(who) <= {"name", "role", "may_edit"}:
            try:
                tokens[str(token)] = User(
                    str(who.get("name", "token")), who.get("role", "viewer"), who.get("may_edit") is True
                )
            except ValueError as error:
                raise ConfigError(f"a token's role cannot be used: {error}") from error
        else:
            raise ConfigError("a token must map to a role, or to a mapping with name, role and may_edit")
    return tokens


def _servers(given: Any) -> dict[str, str] | None:
    if given is None:
        return None
    if not isinstance(given, dict) or not all(isinstance(url, str) for url in given.values()):
        raise ConfigError("servers in the configuration must map names to Redis URLs")
    return {str(name): url for name, url in given.items()}


def _mapping(given: Any, name: str) -> dict[Any, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ConfigError(f"{name} in the configuration must be a mapping")
    return given


def _texts(settings: Mapping[str, Any], name: str) -> Sequence[str]:
    given: Sequence[str] = settings.get(name) or ()
    if not isinstance(given, (list, tuple)) or not all(isinstance(text, str) for text in given):
        raise ConfigError(f"{name} in the configuration must be a list of strings")
    return given
