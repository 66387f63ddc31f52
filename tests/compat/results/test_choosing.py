"""From `result_backend` to where results are."""

import ssl
from collections.abc import Callable
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery
from sidekiq_celery.app.backends import by_url
from sidekiq_celery.backends.base import BaseBackend, BaseDictBackend, DisabledBackend, get_current_task
from sidekiq_celery.backends.cache import CacheBackend
from sidekiq_celery.backends.redis import RedisBackend, SentinelBackend
from sidekiq_celery.exceptions import BackendGetMetaError, ImproperlyConfigured, TimeoutError

MakeApp = Callable[..., Celery]


class DictBackend(BaseBackend):
    """A backend of a program's own: the hooks that it has to define."""

    failures = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stored: dict[str, Any] = {}

    def _store_result(self, task_id: str, result: Any, state: str, traceback: Any = None, **kwargs: Any) -> Any:
        self.stored[task_id] = {"status": state, "result": result, "traceback": traceback}

    def _get_task_meta_for(self, task_id: str) -> Any:
        if self.failures:
            self.failures -= 1
            raise OSError("not now")
        return self.meta_from_decoded(dict(self.stored.get(task_id, {"status": "PENDING", "result": None})))

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        return isinstance(exc, OSError)


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("redis://", "redis://localhost:6379/0"),
        ("redis", "redis://localhost:6379/0"),
        ("redis://:secret@host:1234/5", "redis://:secret@host:1234/5"),
        ("redis://host/3?socket_timeout=7", "redis://host/3?socket_timeout=7"),
        ("rediss://host/0?ssl_cert_reqs=CERT_NONE", "rediss://host/0?ssl_cert_reqs=none"),
        ("redis+socket:///tmp/redis.sock?virtual_host=2", "unix:///tmp/redis.sock?db=2"),
        ("unix:///tmp/redis.sock", "unix:///tmp/redis.sock?db=0"),
        (
            "sentinel://:secret@one:26379/2;sentinel://two:26380/2",
            "redis+sentinel://:secret@one:26379,two:26380/main/2",
        ),
    ],
)
def test_the_urls_of_celery_lead_to_redis(make_app: MakeApp, url: str, own: str) -> None:
    """In the forms that Celery takes."""
    app = make_app(result_backend=url, result_backend_transport_options={"master_name": "main"})

    assert app.backend.settings.url == own
    assert type(app.backend) is (SentinelBackend if url.startswith("sentinel") else RedisBackend)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://", {"host": "localhost", "port": 6379, "db": 0}),
        (
            "redis://me:secret@host:1234/5",
            {"host": "host", "port": 1234, "db": 5, "username": "me", "password": "secret"},
        ),
        ("rediss://host", {"host": "host", "port": 6379, "db": 0, "connection_class": redis.SSLConnection}),
        (
            "unix:///tmp/redis.sock?db=2",
            {"path": "/tmp/redis.sock", "db": 2, "connection_class": redis.UnixDomainSocketConnection},
        ),
    ],
)
def test_a_program_opens_a_connection_of_redis_py_by_connparams(
    make_app: MakeApp, url: str, place: dict[str, Any]
) -> None:
    """As with Celery's backend; they are what a pool of redis-py takes."""
    backend = make_app(result_backend=url, redis_socket_timeout=7.5, redis_max_connections=3).backend

    limits = {"socket_timeout": 7.5, "socket_connect_timeout": backend.settings.connect_timeout_seconds}
    assert backend.connparams == {**place, **limits, "max_connections": 3}
    connection = redis.ConnectionPool(**backend.connparams).make_connection()
    assert all(getattr(connection, name) == value for name, value in place.items() if name in ("host", "path", "db"))


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://", {"host": "localhost", "port": 6379, "db": 0}),
        ("redis://:secret@host:1234/5", {"host": "host", "port": 1234, "db": 5, "password": "secret"}),
        (
            "socket:///tmp/redis.sock?virtual_host=2",
            {"path": "/tmp/redis.sock", "db": 2, "connection_class": redis.UnixDomainSocketConnection},
        ),
    ],
)
def test_a_store_of_a_package_reads_its_url_by_the_backend_s_method(url: str, place: dict[str, Any]) -> None:
    """celery_longterm_scheduler binds it to an object that is no backend, so that both understand the same URLs."""
    read = RedisBackend._params_from_url.__get__(object())

    assert read(url, {"socket_timeout": 7.5, "db": 9}) == {**place, "socket_timeout": 7.5}


def test_a_redis_behind_sentinels_has_no_connparams(make_app: MakeApp) -> None:
    """The error names redis-py's module for that."""
    app = make_app(result_backend="sentinel://one", result_backend_transport_options={"master_name": "main"})

    with pytest.raises(NotImplementedError, match=r"redis\.sentinel"):
        _ = app.backend.connparams


def test_settings_fill_in_for_a_url(make_app: MakeApp) -> None:
    """Host, port, database, credentials; and what is of the connection."""
    app = make_app(
        result_backend="redis", redis_host="host", redis_port=1234, redis_db=5, redis_username="u", redis_password="p@",
        redis_socket_timeout=7, redis_socket_connect_timeout=2, redis_max_connections=3,
        redis_backend_use_ssl={"ssl_cert_reqs": ssl.CERT_NONE},
    )  # fmt: skip

    settings = app.backend.settings

    assert settings.url == "rediss://u:p%40@host:1234/5?ssl_cert_reqs=none"
    assert (settings.socket_timeout_seconds, settings.connect_timeout_seconds, settings.pool_size) == (7.0, 2.0, 3)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("rpc://", "Keep results in Redis"),
        ("elasticsearch://host/index", "Keep results in Redis"),
        ("mongodb://host/db", "Keep results in Redis"),
        ("cache+memcached://host", r"cache\+memory://"),
        ("sentinel://host:26379", "master_name"),
        ("redis+sentinel://host:26379/mymaster/0", "sentinel://host1:26379;sentinel://host2:26379/0"),
        ("nonsense", "Did you spell"),
        ("sidekiq_celery.backends", "a Python module"),
    ],
)
def test_what_is_not_there_says_what_to_use(make_app: MakeApp, url: str, message: str) -> None:
    """It is raised when the backend is first used."""
    app = make_app(result_backend=url)

    with pytest.raises(ImproperlyConfigured, match=message):
        _ = app.backend


@pytest.mark.parametrize("name", [None, "disabled", "disabled://"])
def test_results_may_be_off(make_app: MakeApp, name: str | None) -> None:
    """As they are by default."""
    assert type(make_app(result_backend=name).backend) is DisabledBackend


def test_without_a_backend_reading_raises_what_programs_of_celery_catch(make_app: MakeApp) -> None:
    """NotImplementedError where a result is waited for, AttributeError where a state is read."""
    result = make_app(result_backend=None).AsyncResult("an-id")

    with pytest.raises(NotImplementedError, match="No result backend is configured"):
        result.get(timeout=1)
    with pytest.raises(AttributeError, match="No result backend is configured"):
        result.ready()
    assert getattr(result, "state", None) is None


def test_celerys_own_paths_name_the_classes_here(make_app: MakeApp) -> None:
    """As in settings that are carried over."""
    app = make_app()

    assert by_url("celery.backends.redis:RedisBackend", app.loader) == (RedisBackend, None)
    assert by_url("celery.backends.redis.RedisBackend", app.loader) == (RedisBackend, None)


def test_a_setting_replaces_a_backend_by_one_of_ones_own(make_app: MakeApp) -> None:
    """`override_backends` names a class for a kind of URL, as in Celery."""
    app = make_app()

    app.config_from_object(
        {
            "result_backend": "redis://localhost/0",
            "override_backends": {"redis": "sidekiq_celery.backends.cache:CacheBackend"},
        }
    )

    assert by_url(app.conf.result_backend, app.loader)[0] is CacheBackend


def test_a_provider_of_credentials_is_refused_with_advice(make_app: MakeApp) -> None:
    """Without it, results would go to Redis under another user, or none."""
    app = make_app(result_backend="redis://localhost/0", redis_backend_credential_provider="my.Provider")

    with pytest.raises(ImproperlyConfigured, match="put the user and password into result_backend"):
        _ = app.backend.settings


def test_results_in_memory_are_those_of_this_process(make_app: MakeApp) -> None:
    """For tests: `cache+memory://`."""
    app, other = make_app(result_backend="cache+memory://"), make_app(result_backend="cache+memory://")
    app.backend.mark_as_done("in-memory", 1)

    assert other.AsyncResult("in-memory").get(timeout=0) == 1
    assert other.ResultSet([other.AsyncResult("in-memory")]).get(timeout=0) == [1]
    other.AsyncResult("in-memory").forget()
    with pytest.raises(TimeoutError):
        app.AsyncResult("in-memory").get(timeout=0)


def test_a_group_that_was_read_and_forgotten_is_not_waited_for_by_looking(make_app: MakeApp) -> None:
    """As one in Redis."""
    app = make_app(result_backend="cache+memory://")
    app.backend.mark_as_done("read-once", 1)
    group = app.GroupResult("g", [app.AsyncResult("read-once")])
    assert group.results[0].get(timeout=0) == 1

    group.forget()

    assert group.get(timeout=0) == [None]


def test_a_backend_of_ones_own_waits_by_looking(make_app: MakeApp) -> None:
    """Named by its path; it has what all have."""
    app = make_app(result_backend=f"{__name__}:DictBackend")

    app.backend.mark_as_failure("a", ValueError("x"))
    app.backend.mark_as_done("b", 1)

    with pytest.raises(ValueError, match="x"):
        app.AsyncResult("a").get(timeout=0)
    assert app.AsyncResult("b").get(timeout=0) == 1
    assert app.ResultSet([app.AsyncResult("b")]).get(timeout=0) == [1]
    with pytest.raises(TimeoutError):
        app.AsyncResult("c").get(timeout=0.01, interval=0.001)
    assert app.backend.effects_for("a", "SUCCESS", 1) is None


def test_backends_of_others_find_what_they_need(make_app: MakeApp) -> None:
    """What django-celery-results imports, and calls."""
    backend = make_app(result_backend=f"{__name__}:DictBackend").backend

    assert backend._encode({"x": 1}) == ("application/json", "utf-8", '{"x": 1}')
    assert (BaseDictBackend, get_current_task()) == (BaseBackend, None)


def test_reading_is_tried_again_when_asked_for(make_app: MakeApp) -> None:
    """`result_backend_always_retry`, as often as `result_backend_max_retries` says."""
    app = make_app(
        result_backend=f"{__name__}:DictBackend", result_backend_always_retry=True, result_backend_max_retries=2,
        result_backend_base_sleep_between_retries_ms=0,
    )  # fmt: skip
    app.backend.mark_as_done("a", 1)

    app.backend.failures = 2
    assert app.AsyncResult("a").result == 1
    app.backend.failures = 3
    with pytest.raises(BackendGetMetaError) as caught:
        app.AsyncResult("a").get(timeout=0)

    assert caught.value.task_id == "a"


def test_urls_are_shown_without_their_passwords(make_app: MakeApp) -> None:
    """One, or several."""
    one = make_app(result_backend="redis://:secret@host/1").backend
    many = make_app(
        result_backend="sentinel://:secret@one:1/0;sentinel://:secret@two:2/0",
        result_backend_transport_options={"master_name": "main"},
    ).backend

    assert (one.as_uri(), one.as_uri(include_password=True)) == ("redis://:**@host/1", "redis://:secret@host/1")
    assert many.as_uri() == "sentinel://:**@one:1/0;sentinel://:**@two:2/0"
