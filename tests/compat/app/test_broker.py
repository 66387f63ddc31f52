"""`broker_url` in all its forms, to where the engine's Redis is."""

import ssl

import pytest
import redis
from sidekiq_celery._config.broker import kombu_url, redis_settings
from sidekiq_celery.exceptions import ImproperlyConfigured

from sidekiq_py.errors import ConfigError
from sidekiq_py.redis_access.connection.pool import Pool


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://", "redis://localhost"),
        ("redis://:secret@host:6380/3", "redis://:secret@host:6380/3"),
        ("redis://user:p%40ss@host/3", "redis://user:p%40ss@host/3"),
        ("rediss://host/1?ssl_cert_reqs=CERT_NONE", "rediss://host/1?ssl_cert_reqs=none"),
        ("rediss://host/1?ssl_cert_reqs=required", "rediss://host/1?ssl_cert_reqs=required"),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
        ("redis+socket:///run/redis.sock?virtual_host=2", "unix:///run/redis.sock?db=2"),
        ("redis+socket:///run/redis.sock", "unix:///run/redis.sock?db=0"),
        ("redis://one/0;redis://two/0", "redis://one/0"),
        ("sidekiq://:secret@host:6380/3", "redis://:secret@host:6380/3"),
        ("sidekiqs://host/1", "rediss://host/1"),
        ("sidekiq+socket:///run/redis.sock", "unix:///run/redis.sock?db=0"),
    ],
)
def test_each_form_of_a_redis_url_is_understood(make_app, url, expected):
    """As kombu's Redis transport takes them."""
    assert redis_settings(make_app(broker=url)).url == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sidekiq://host/1", "redis://host/1"),
        ("sidekiqs://host/1", "rediss://host/1?ssl_cert_reqs=required"),
        ("sidekiqs://host/1?ssl_ca_certs=/ca.pem", "rediss://host/1?ssl_ca_certs=/ca.pem&ssl_cert_reqs=required"),
        ("sidekiq+sentinel://one:26379;sidekiq+sentinel://two:26379", "sentinel://one:26379;sentinel://two:26379"),
        ("redis://one/0?db=3&socket_timeout=1;redis://two/1?protocol=3", "redis://one/3;redis://two/1"),
        ("rediss://host/1?ssl_cert_reqs=none&socket_timeout=1", "rediss://host/1?ssl_cert_reqs=none"),
        ("sidekiqs://host/1?socket_timeout=1", "rediss://host/1?ssl_cert_reqs=required"),
    ],
)
def test_remote_control_goes_by_kombus_own_transport(url, expected):
    """Also for a program that had our transport for its broker, and has changed its import since."""
    assert kombu_url(url) == expected


def test_ssl_options_go_into_the_url(make_app):
    """Those of `broker_use_ssl`, with or without `ssl_` in front."""
    options = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ca_certs": "/etc/ca.pem", "keyfile": None, "check_hostname": False}
    app = make_app(broker="redis://host/0", broker_use_ssl=options)

    url = "rediss://host/0?ssl_cert_reqs=required&ssl_ca_certs=%2Fetc%2Fca.pem&ssl_check_hostname=False"
    assert redis_settings(app).url == url


def test_ssl_cert_reqs_of_none_is_no_check_of_the_certificate(make_app):
    """As to redis-py, which kombu passes it to. Heroku's certificates are self-signed, and programs there say so."""
    app = make_app(broker="rediss://host/0", broker_use_ssl={"ssl_cert_reqs": None})

    assert redis_settings(app).url == "rediss://host/0?ssl_cert_reqs=none"


def test_sentinels_are_named_with_their_master(make_app):
    """Each is a URL of its own in kombu."""
    app = make_app(
        broker="sentinel://:pw@one:26379/2;sentinel://:pw@two:26380/2",
        broker_transport_options={"master_name": "mymaster"},
    )

    assert redis_settings(app).url == "redis+sentinel://:pw@one:26379,two:26380/mymaster/2"


@pytest.mark.parametrize(
    ("of_sentinels", "use_ssl", "url"),
    [
        ({"password": "q"}, None, "redis+sentinel://:pw@one:26379/mymaster/0?sentinel_password=q"),
        (
            {"username": "u", "password": "q", "ssl": True, "ssl_ca_certs": "/ca.pem"},
            None,
            "redis+sentinel://:pw@one:26379/mymaster/0"
            "?sentinel_username=u&sentinel_password=q&sentinel_ssl=true&ssl_ca_certs=%2Fca.pem",
        ),
        (
            {"ssl": True, "ssl_cert_reqs": "none"},
            {"ssl_ca_certs": "/ca.pem"},
            "rediss+sentinel://:pw@one:26379/mymaster/0?sentinel_ssl=true&ssl_ca_certs=%2Fca.pem",
        ),
    ],
)
def test_sentinels_that_ask_for_a_password_or_tls_get_it(make_app, of_sentinels, use_ssl, url):
    """From `sentinel_kwargs`, as in kombu, for jobs and for results."""
    options = {"master_name": "mymaster", "sentinel_kwargs": of_sentinels}
    app = make_app(
        broker="sentinel://:pw@one:26379",
        broker_transport_options=options,
        broker_use_ssl=use_ssl,
        result_backend="sentinel://:pw@one:26379",
        result_backend_transport_options=options,
        redis_backend_use_ssl=use_ssl,
    )

    assert redis_settings(app).url == app.backend.settings.url == url


def test_a_sentinel_without_a_master_is_refused(make_app):
    """With the setting that names it."""
    with pytest.raises(ImproperlyConfigured, match="master_name"):
        redis_settings(make_app(broker="sentinel://one:26379"))


def test_kombus_connection_refuses_sentinels_in_the_form_of_redis_url(app, monkeypatch):
    """Jobs find them, but remote control and events do not: kombu cannot read the port."""
    monkeypatch.setenv("REDIS_URL", "redis+sentinel://one:26379,two:26379/mymaster/0")

    with pytest.raises(ImproperlyConfigured, match="'master_name': 'mymaster'"):
        app.connection_for_read()


def test_transport_options_are_kept(make_app):
    """The prefix of keys is a namespace; timeouts are the engine's."""
    app = make_app(
        broker="redis://host/0",
        broker_transport_options={"global_keyprefix": "shop:", "socket_timeout": 7, "socket_connect_timeout": 2},
    )

    settings = redis_settings(app)

    assert settings.namespace == "shop"
    assert (settings.socket_timeout_seconds, settings.connect_timeout_seconds) == (7.0, 2.0)


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("amqp://guest:geheim@host//", "sidekiq-celery bridge"),
        ("sqs://key:geheim@", "sidekiq-celery bridge"),
        ("pyamqp://host", "sidekiq-celery bridge"),
        ("localhost:6379", "has no scheme, and sidekiq_celery keeps its jobs in Redis: write it as in redis://"),
        ("host.example.org", "sidekiq-celery bridge"),
        ("memory://", "task_always_eager"),
        ("redis+sentinel://:geheim@one:26379,two:26379/mymaster/0", "'master_name': 'mymaster'"),
    ],
)
def test_another_broker_is_refused_when_it_is_needed(make_app, url, advice, monkeypatch):
    """Making the app is not; the message has no password and says what to do."""
    # Tests of test helpers may have set it.
    monkeypatch.setattr("sidekiq_celery._config.broker.in_memory", None)
    app = make_app(broker=url)
    assert app.conf.broker_url == url

    with pytest.raises(ImproperlyConfigured, match=advice) as caught:
        redis_settings(app)

    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("mark", ["#", "?", "/", "["])
@pytest.mark.parametrize("start", ["redis://user:geheim", "redis+socket://:12", "sentinel://one;sentinel://user:12"])
def test_half_a_password_is_not_printed(make_app, start, mark):
    """The mark should be percent-encoded; the error says so, for the broker and for results."""
    url = f"{start}{mark}geheim@host/0"
    options = {"master_name": "main"}
    app = make_app(broker=url, backend=url, broker_transport_options=options, result_backend_transport_options=options)

    for settings in (lambda: redis_settings(app), lambda: app.backend.get("key")):
        with pytest.raises(ConfigError, match="In a password, write") as caught:
            settings()
        assert "geheim" not in str(caught.value)


def test_errors_about_a_url_name_the_setting_that_has_it(make_app):
    """Not the engine's own, which a program of Celery does not have."""
    app = make_app(broker="redis://host/jobs", backend="redis://host:port/0")

    with pytest.raises(ConfigError, match=r"^broker_url is 'redis://host/jobs'; what follows"):
        redis_settings(app)
    with pytest.raises(ConfigError, match=r"^result_backend is 'redis://host:port/0'; the port"):
        app.backend.get("key")


@pytest.mark.parametrize(
    "url", ["redis://host/0?cache=1", "redis://host/0?socket_timeout=long", "rediss://host/0?ssl_cert_reqs=some"]
)
def test_errors_about_an_option_of_a_url_name_the_setting_that_has_it(make_app, url):
    """They come up when the first connection is made, and a program may have several URLs."""
    with pytest.raises(ConfigError, match=r"^broker_url is '"):
        make_app(broker=url).send_task("any")
    with pytest.raises(ConfigError, match=r"^result_backend is '"):
        make_app(backend=url).backend.get("key")


def test_without_a_broker_the_environment_says_where(app, monkeypatch):
    """By Rails' variables; else it is the local Redis."""
    assert redis_settings(app).url == "redis://localhost:6379/0"

    monkeypatch.setenv("REDIS_URL", "redis://rails/5")
    assert redis_settings(app).url == "redis://rails/5"

    monkeypatch.setenv("REDIS_PROVIDER", "MY_REDIS")
    monkeypatch.setenv("MY_REDIS", "redis://provider/6")
    assert redis_settings(app).url == "redis://provider/6"


def test_the_settings_open_a_connection(make_app, redis_url, redis_client: redis.Redis):
    """With the prefix before each key."""
    app = make_app(broker=redis_url, broker_transport_options={"global_keyprefix": "shop:"})

    pool = Pool(redis_settings(app))
    with pool.link() as link:
        link.command("SET", "a", "1")
    pool.close()

    assert redis_client.get("shop:a") == b"1"


def test_kombu_connects_where_jobs_are(make_app, redis_url):
    """For health checks: `app.connection().ensure_connection()`."""
    app = make_app(broker=redis_url)

    with app.connection() as connection:
        connection.ensure_connection(max_retries=1)
        assert connection.connected


def test_kombu_connects_although_the_url_has_options_of_redis_py(make_app, redis_url):
    """The engine takes them, but kombu raises TypeError for each, and remote control and events need kombu."""
    app = make_app(broker=f"{redis_url}?socket_timeout=5&health_check_interval=30&protocol=3")

    with app.connection() as connection:
        connection.ensure_connection(max_retries=1)
        assert connection.connected
