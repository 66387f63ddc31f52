"""Turns Celery's `broker_url` and its options into the engine's Redis settings."""

import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.functional import maybe_list
from sidekiq_py.config import redis_url_from_environment
from sidekiq_py.extension import RedisSettings, redact

_LOCAL = "redis://localhost:6379/0"
REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+socket", "sentinel")
# Schemes of our kombu transport, which a program may have used before.
_OF_THE_TRANSPORT = {
    "sidekiq": "redis",
    "sidekiqs": "rediss",
    "sidekiq+socket": "redis+socket",
    "sidekiq+sentinel": "sentinel",
}

# From kombu's values of the ssl option to those of a redis URL. To redis-py, which kombu asks, None is CERT_NONE.
_CERT_REQS: dict[Any, str] = {None: "none"} | {
    key: mode.name.removeprefix("CERT_").lower() for mode in ssl.VerifyMode for key in (mode, mode.name)
}
_SSL_OPTIONS = frozenset(("ca_certs", "certfile", "keyfile", "check_hostname"))

in_memory: Callable[[], str] | None = None
"""Returns the URL of the Redis to use for `memory://`; `sidekiq_celery.contrib.testing` sets it."""


def default_broker_url() -> str:
    """The Redis to use without a setting: `REDIS_PROVIDER`, `REDIS_URL`, or else the local Redis."""
    return redis_url_from_environment() or _LOCAL


def redis_settings(app: App, url: str | None = None) -> RedisSettings:
    """
    The settings of the Redis that holds the jobs of *app*.

    Args:
        url: A URL to use instead of `broker_write_url`.

    Raises:
        ConfigError: The URL is malformed.
        ImproperlyConfigured: The broker is not Redis; the message says how to migrate.
    """
    conf = app.conf
    wanted: Any = url or conf.broker_write_url or default_broker_url()
    if not isinstance(wanted, str):
        # kombu accepts a list of servers, and tries one after another.
        wanted = ";".join(maybe_list(wanted))
    options: Mapping[str, Any] = conf.broker_transport_options or {}
    if wanted.startswith("memory:") and in_memory is not None:
        wanted = in_memory()
    wanted = of_redis(wanted)
    scheme = wanted.partition("://")[0].lower() if "://" in wanted else ""
    if scheme not in REDIS_SCHEMES:
        raise ImproperlyConfigured(_no_redis(wanted, scheme))
    namespace = str(options.get("global_keyprefix") or "").removesuffix(":")
    reply = options.get("socket_timeout")
    connect = options.get("socket_connect_timeout", reply)
    limits = timeouts(reply, conf.broker_connection_timeout if connect is None else connect)
    setting = "broker_url" if url or conf.broker_write_url else "redis_url"
    engine_url = own_url(wanted, scheme, options, conf.broker_use_ssl, setting)
    return RedisSettings(engine_url, namespace=namespace, setting=setting, **limits)


def _no_redis(url: str, scheme: str) -> str:
    if scheme == "memory":
        return (
            "broker_url is memory://, which is for tests: there the fixtures of sidekiq_celery.contrib.pytest, or an "
            "import of sidekiq_celery.contrib.testing.app, have a private Redis stand for it. Elsewhere give the URL "
            "of a Redis, as in redis://localhost:6379/0, or set task_always_eager=True"
        )
    if scheme.endswith("+sentinel"):
        return (
            f"{redact(url)!r} names sentinels in sidekiq_py's form; sidekiq_celery needs Celery's form: set broker_url "
            "as in 'sentinel://host1:26379;sentinel://host2:26379/0', and broker_transport_options as in "
            "{'master_name': 'mymaster'}"
        )
    if not scheme:
        return (
            f"broker_url is {redact(url)!r}, which has no scheme, and sidekiq_celery keeps its jobs in Redis: write it "
            "as in redis://localhost:6379/0. To Celery it is an AMQP broker; jobs that are still sent there are "
            "brought over by `sidekiq-celery bridge`"
        )
    return (
        f"broker_url is {redact(url)!r}; sidekiq_celery keeps its jobs in Redis, as in redis://localhost:6379/0. "
        f"Jobs that are still sent to this {scheme} broker are brought over by `sidekiq-celery bridge`"
    )


def timeouts(reply: Any, connect: Any) -> dict[str, Any]:
    """The settings for the timeouts in seconds, as far as they are given."""
    given = {"socket_timeout_seconds": reply, "connect_timeout_seconds": connect}
    return {name: float(seconds) for name, seconds in given.items() if seconds}


def is_redis(url: Any) -> bool:
    """Whether a broker's URL, or the first of several, is that of a Redis."""
    return of_redis(str(next(iter(maybe_list(url)), ""))).partition("://")[0].lower() in REDIS_SCHEMES


def kombu_url(url: Any) -> Any:
    """
    *url*, or a list of several, in the form for kombu's own transport: sockets as `redis+socket://`, and in tests a
    Redis for `memory://`.

    Raises:
        ImproperlyConfigured: It names sentinels in a form that kombu does not know.
    """
    if not isinstance(url, str):
        url = ";".join(maybe_list(url))
    if url.startswith("memory:") and in_memory is not None:
        return in_memory()
    is_secure = url.startswith("sidekiqs:") and "ssl_cert_reqs" not in url
    url = ";".join(map(_without_redis_options, of_redis(url).split(";")))
    if is_secure:
        # Without an option for certificates, kombu's own transport would not encrypt at all.
        return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=required"
    parts = urlsplit(url)
    if parts.scheme in ("redis+sentinel", "rediss+sentinel"):
        raise ImproperlyConfigured(_no_redis(url, parts.scheme))
    if parts.scheme != "unix":
        return url
    query = dict(parse_qsl(parts.query))
    query["virtual_host"] = query.pop("db", query.get("virtual_host", "0"))
    return _joined("redis+socket", parts.netloc, parts.path, query)


def _without_redis_options(url: str) -> str:
    # kombu's connections raise TypeError for options of redis-py, such as socket_timeout.
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    known = {name: value for name, value in query.items() if name.startswith("ssl")}
    if parts.scheme not in ("redis", "rediss") or known == query:
        return url
    return _joined(parts.scheme, parts.netloc, f"/{query['db']}" if "db" in query else parts.path, known)


def of_redis(url: str) -> str:
    """Replace our kombu transport's URLs with the matching Redis URLs. Several are joined by semicolons."""
    servers = [server.partition("://") for server in url.split(";")]
    return ";".join(f"{_OF_THE_TRANSPORT.get(scheme, scheme)}{sep}{rest}" for scheme, sep, rest in servers)


def own_url(url: str, scheme: str, options: Mapping[str, Any], use_ssl: Any, setting: str) -> str:
    """
    *url* in the form for the engine.

    Args:
        scheme: The URL's scheme, which may be one that kombu knows but the engine does not.
        options: `broker_transport_options`, or the result backend's counterpart.
        use_ssl: `broker_use_ssl`, or the result backend's counterpart.
        setting: What errors call the setting that has *url*.

    Raises:
        ConfigError: The URL is malformed.
        ImproperlyConfigured: A sentinel URL has no master name.
    """
    if scheme == "sentinel":
        return _sentinel_url(url, options, use_ssl, setting)
    # kombu fails over between several servers; the engine uses one, or a sentinel.
    first = url.partition(";")[0]
    _check(
        "unix" if scheme in ("unix", "redis+socket") else "rediss" if scheme == "rediss" else "redis", first, setting
    )
    parts = urlsplit(first)
    query = dict(parse_qsl(parts.query))
    if scheme in ("unix", "redis+socket"):
        query["db"] = str(query.pop("virtual_host", query.get("db", "0")))
        return _joined("unix", parts.netloc, parts.path, query)
    secure = scheme == "rediss" or bool(use_ssl)
    query.update(_ssl_query(use_ssl))
    if "ssl_cert_reqs" in query:
        query["ssl_cert_reqs"] = _CERT_REQS.get(query["ssl_cert_reqs"], query["ssl_cert_reqs"])
    return _joined("rediss" if secure else "redis", parts.netloc or "localhost", parts.path, query)


def _check(scheme: str, url: str, setting: str) -> None:
    # It raises for a malformed URL, of which the parts below might keep half a password.
    RedisSettings(f"{scheme}://{url.partition('://')[2]}", setting=setting)


def _ssl_query(use_ssl: Any) -> dict[str, str]:
    if not isinstance(use_ssl, Mapping):
        return {}
    found: dict[str, str] = {}
    for key, value in use_ssl.items():
        name = key.removeprefix("ssl_")
        if name == "cert_reqs":
            found["ssl_cert_reqs"] = _CERT_REQS.get(value, str(value))
        elif name in _SSL_OPTIONS and value is not None:
            found[f"ssl_{name}"] = str(value)
    return found


def _sentinel_url(url: str, options: Mapping[str, Any], use_ssl: Any, setting: str) -> str:
    """
    The engine's URL for sentinels. kombu has a separate URL for each sentinel,
    `sentinel://[:password@]host:port[/db];…`. Its options have the master's name and the sentinels' own credentials.
    """
    master = options.get("master_name")
    if not master:
        raise ImproperlyConfigured(
            "broker_url is sentinel://…; name the master: broker_transport_options = {'master_name': 'mymaster'}"
        )
    addresses = [part if "://" in part else f"sentinel://{part}" for part in url.split(";") if part]
    for address in addresses:
        _check("redis", address, setting)
    servers = [urlsplit(address) for address in addresses]
    hosts = ",".join(f"{server.hostname or 'localhost'}:{server.port or 26379}" for server in servers)
    users = [server for server in servers if server.password or server.username]
    credentials = ""
    if users:
        user, password = (unquote(text or "") for text in (users[0].username, users[0].password))
        credentials = f"{quote(user, safe='')}:{quote(password, safe='')}@"
    db = next((server.path.strip("/") for server in reversed(servers) if server.path.strip("/")), "0")
    scheme = "rediss+sentinel" if use_ssl else "redis+sentinel"
    of_sentinels = options.get("sentinel_kwargs") or {}
    query = {f"sentinel_{name}": str(of_sentinels[name]) for name in ("username", "password") if of_sentinels.get(name)}
    if of_sentinels.get("ssl"):
        query["sentinel_ssl"] = "true"
        # The engine has one set of certificates for the sentinels and the primary.
        use_ssl = use_ssl or of_sentinels
    return _joined(scheme, credentials + hosts, f"/{master}/{db}", query | _ssl_query(use_ssl))


def _joined(scheme: str, place: str, path: str, query: Mapping[str, str]) -> str:
    # urlunsplit leaves out the slashes of a URL without a host.
    return f"{scheme}://{place}{path}" + (f"?{urlencode(query)}" if query else "")
