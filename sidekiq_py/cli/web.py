"""`sidekiq-py web`: serves the dashboard on its own."""

import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import yaml

from sidekiq_py.cli.connection import finds_redis, pushes_jobs
from sidekiq_py.errors import ConfigError
from sidekiq_py.redaction import Redaction

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SETTINGS = ("accounts", "tokens", "allowed_hosts", "origins", "servers", "redaction", "title", "trace_url")
_LEAVE_SECONDS = 2


def _hash_password(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    _require_extra()
    from sidekiq_py.web.passwords import hash_password

    click.echo(hash_password(_password()))
    ctx.exit()


def _password() -> str:
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return password
    # getpass would warn that it cannot hide what is typed.
    lines = sys.stdin.read().splitlines()
    if not lines or not lines[0]:
        raise click.UsageError(
            "--hash-password asks for a password, and there is no terminal to ask on; pipe the password in, on one line"
        )
    if any(line != lines[0] for line in lines[1:]):
        raise click.UsageError("the lines differ; give the password on one line, or the same password twice")
    return lines[0]


@click.command()
@click.option("--bind", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on.")
@click.option(
    "--port",
    default=4567,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "-C",
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML with accounts, tokens, servers, redaction; see docs/dashboard.md.",
)
@click.option("--allow-host", multiple=True, metavar="HOST", help="Host name that requests may use; repeat for more.")
@click.option(
    "--hash-password",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_hash_password,
    help="Ask for a password, print its hash for the configuration, and exit.",
)
@pushes_jobs
@finds_redis
def web(bind: str, port: int, config_file: Path | None, allow_host: tuple[str, ...]) -> None:
    """
    Serve the dashboard.

    Without accounts or tokens, only this machine has access: the server listens on a loopback address and rejects
    requests that came through a proxy.

    \b
    sidekiq-py web
    sidekiq-py web --bind 0.0.0.0 --config dashboard.yml
    """
    _require_extra()
    import uvicorn

    from sidekiq_py.web.access import Access
    from sidekiq_py.web.application import Dashboard
    from sidekiq_py.web.site import Site

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
    site = Site(
        access,
        servers=_servers(settings.get("servers")),
        redaction=_redaction(settings),
        title=str(settings.get("title", "Sidekiq")),
        trace_url=str(settings.get("trace_url", "")),
    )
    application = Dashboard(site)

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # uvicorn would wait for them in vain.
            application.end_streams()
            await super().shutdown(sockets)

    server = Server(
        uvicorn.Config(
            application,
            host=bind,
            port=port,
            log_level="warning",
            # Do not reveal the server software. Trust proxy headers only if there are access rules: without them, the
            # dashboard rejects requests that came through a proxy.
            server_header=False,
            proxy_headers=access.has_rules,
            timeout_graceful_shutdown=_LEAVE_SECONDS,
        )
    )
    listening = _listen(bind, port)
    host, bound = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"The dashboard is at http://{shown}:{bound}/")
    server.run(sockets=[listening])


def _listen(bind: str, port: int) -> socket.socket:
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


def _require_extra() -> None:
    missing = [name for name in ("starlette", "jinja2", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"the dashboard needs {', '.join(missing)}: pip install 'sidekiq-py[web]'")


def _settings(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        settings = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{path} must be a YAML mapping with {', '.join(_SETTINGS)}")
    unknown = [str(name) for name in settings if name not in _SETTINGS]
    if unknown:
        raise ConfigError(f"{path} has unknown settings: {', '.join(unknown)}; the settings are {', '.join(_SETTINGS)}")
    return settings


def _accounts(given: Any) -> dict[str, Any]:
    from sidekiq_py.web.access import Account

    accounts = {}
    for name, about in _mapping(given, "accounts").items():
        known = ("password_hash", "role", "may_edit")
        if not isinstance(about, dict) or set(about) - set(known) or not isinstance(about.get("password_hash"), str):
            raise ConfigError(f"the account {name} must have password_hash, and may have role and may_edit only")
        try:
            accounts[str(name)] = Account(
                about["password_hash"], about.get("role", "viewer"), may_edit=about.get("may_edit") is True
            )
        except ConfigError as error:
            raise ConfigError(f"the account {name}: {error}") from None
    return accounts


def _tokens(given: Any) -> dict[str, Any]:
    from sidekiq_py.web.access import User

    tokens: dict[str, Any] = {}
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


def _redaction(settings: Mapping[str, Any]) -> Redaction | None:
    if settings.get("redaction") is None:
        return None
    return Redaction.of_settings(settings["redaction"], "redaction")


def _mapping(given: Any, name: str) -> dict[Any, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ConfigError(f"{name} in the configuration must be a mapping")
    return given


def _texts(settings: Mapping[str, Any], name: str) -> tuple[str, ...]:
    given = settings.get(name) or ()
    if not isinstance(given, (list, tuple)) or not all(isinstance(text, str) for text in given):
        raise ConfigError(f"{name} in the configuration must be a list of strings")
    return tuple(given)
