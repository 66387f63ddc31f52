"""kombu's connections to an app's broker: for health checks, remote control and events. Jobs do not use them."""

from ssl import CERT_REQUIRED
from typing import Any

from sidekiq_celery.contract import App

# kombu waits for a reply without a limit. If a firewall or a NAT had forgotten an idle connection without a word,
# remote control and events would stand still on it until the kernel gives up.
_REPLY_SECONDS = 5.0


def connect(app: App, url: str | None, **given: Any) -> Any:
    """Create a `kombu.Connection` without opening it. Options that are not given come from the settings."""
    from sidekiq_celery._config.broker import default_broker_url, is_redis, kombu_url

    conf = app.conf
    address = kombu_url(url or default_broker_url())
    transport = given.get("transport") or conf.broker_transport
    use_ssl = app.either("broker_use_ssl", given.get("ssl"))
    kind = transport or address.partition("://")[0].lower()
    if (not use_ssl and kind == "rediss") or (use_ssl is True and kind in ("redis", "rediss", "sentinel")):
        # kombu would verify no certificate, and send the password to whoever answers; for True, without TLS. Options in
        # the URL override it.
        use_ssl = {"ssl_cert_reqs": CERT_REQUIRED}
    limits = {"socket_timeout": _REPLY_SECONDS} if is_redis(address) else {}
    options = {
        "userid": given.get("userid") or conf.broker_user,
        "password": given.get("password") or conf.broker_password,
        "virtual_host": given.get("virtual_host") or conf.broker_vhost,
        "port": given.get("port") or conf.broker_port,
        "transport": transport,
        "ssl": use_ssl,
        "heartbeat": given.get("heartbeat"),
        "login_method": given.get("login_method") or conf.broker_login_method,
        "failover_strategy": given.get("failover_strategy") or conf.broker_failover_strategy,
        "transport_options": {**limits, **conf.broker_transport_options, **(given.get("transport_options") or {})},
        "connect_timeout": app.either("broker_connection_timeout", given.get("connect_timeout")),
    }
    return app.amqp.Connection(address, **options)


def pool_of(app: App) -> Any:
    """The connection pool of *app*."""
    from kombu import pools

    pools.set_limit(app.conf.broker_pool_limit)
    return pools.connections[app.connection_for_write()]


def acquire_connection(app: App, pool: bool = True) -> Any:
    """
    Acquire a connection, from the pool unless *pool* is false.

    Raises:
        OperationalError: All connections are in use.
    """
    if not pool:
        return app.connection_for_write()
    return _acquire(app, app.pool, app.conf.broker_pool_acquire_timeout, "connection", "connections")


def acquire_producer(app: App, timeout: float | None = None) -> Any:
    """
    Acquire a `kombu.Producer` from the pool.

    Raises:
        OperationalError: All producers are in use.
    """
    return _acquire(app, app.producer_pool, timeout, "producer", "producer slots")


def _acquire(app: App, pool: Any, timeout: float | None, what: str, plural: str) -> Any:
    from kombu.exceptions import LimitExceeded, OperationalError

    limit = app.conf.broker_pool_limit
    try:
        return pool.acquire(block=True, timeout=timeout)
    except LimitExceeded as exc:
        raise OperationalError(
            f"Timed out waiting for a broker {what} after {timeout}s. All {limit} {plural} are in use. Consider "
            f"increasing broker_pool_limit (currently {limit}) or broker_pool_acquire_timeout (currently {timeout}s)."
        ) from exc
