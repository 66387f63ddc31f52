"""`sidekiq-py web`: serves the dashboard on its own."""

import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import click

from sidekiq_py.cli.connection import finds_redis, pushes_jobs
from sidekiq_py.errors import ConfigError


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
    host, colon, its_port = bind.rpartition(":")
    if colon and (":" not in host or host.endswith("]")):
        address = host.strip("[]") or "0.0.0.0"
        raise click.UsageError(f"--bind takes no port; give --bind {address} --port {its_port or port}")
    bind = bind.strip("[]")
    _require_extra()
    from sidekiq_py.web.serving import Server, dashboard, listen

    server = Server(dashboard(config_file, bind, allow_host), bind, port)
    listening = listen(bind, port)
    host, bound = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    # A disk that is full, or a reader that is gone, must not keep the dashboard from serving.
    with suppress(OSError):
        click.echo(f"The dashboard is at http://{shown}:{bound}/")
    server.run(sockets=[listening])


def _require_extra() -> None:
    missing = [name for name in ("starlette", "jinja2", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"the dashboard needs {', '.join(missing)}: pip install 'sidekiq-py[web]'")
