"""kombu's connections to the broker, and what a fork does to an app."""

import subprocess
import sys
from pathlib import Path

import pytest
from kombu import Connection, Producer, pools
from kombu.exceptions import OperationalError
from sidekiq_celery._send.clients import client_of

from tests.support.certificates import make_certificates
from tests.support.ports import free_port

ROOT = Path(__file__).parents[3]

FORK = """
import os, sys
from sidekiq_celery import Celery
app = Celery("forked", broker="redis://h/0")
before = app.oid, app.thread_oid
@app.on_after_fork.connect
def told(sender, **_):
    print(sender.main, sender.oid != before[0], sender.thread_oid != before[1], flush=True)
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
print("parent", app.oid == before[0], flush=True)
"""


@pytest.fixture
def connected(make_app, redis_url):
    """An app with one connection at most; kombu's pools are emptied."""
    app = make_app(broker=redis_url, broker_pool_limit=1, broker_pool_acquire_timeout=0.05)
    pools.reset()
    yield app
    pools.reset()


def test_a_connection_comes_from_the_pool_and_goes_back(connected):
    """One that is given is used, and left open."""
    with connected.connection_or_acquire() as connection:
        assert isinstance(connection, Connection)
        connection.ensure_connection(max_retries=1)

    with connected.connection_or_acquire("given") as connection:
        assert connection == "given"


def test_a_certificate_is_verified_unless_the_settings_say_otherwise(make_app, new_redis_server, tmp_path):
    """kombu verifies none if it is given no option, and remote control would send the password to anyone."""
    certificates = make_certificates(tmp_path)
    port = free_port()
    new_redis_server(config=certificates.server_settings(port))
    url = f"localhost:{port}/0"

    for bare in (
        make_app(broker=f"rediss://{url}").connection(),
        make_app(broker=f"REDISS://{url}").connection(),
        make_app(broker=f"redis://{url}", broker_use_ssl=True).connection(),
        make_app(broker=[f"rediss://{url}"]).connection(),
        make_app(broker="redis://h").connection("localhost", port=port, virtual_host="0", transport="rediss"),
    ):
        with pytest.raises(OperationalError, match="certificate verify failed"), bare as refused:
            refused.ensure_connection(max_retries=1, interval_start=0)
    for trusting in (
        make_app(broker=f"rediss://{url}?ssl_ca_certs={certificates.authority}"),
        make_app(broker=f"rediss://{url}?ssl_cert_reqs=none"),
        make_app(broker=f"rediss://{url}", broker_use_ssl={"ssl_ca_certs": str(certificates.authority)}),
    ):
        with trusting.connection() as connection:
            connection.ensure_connection(max_retries=1)


def test_a_connection_takes_celerys_arguments_in_celerys_order(make_app):
    """Host, user, password, database and port may be passed positionally."""
    connection = make_app(broker="redis://h").connection("redis://", "me", "secret", "4", 6380)

    assert connection.as_uri(include_password=True) == "redis://me:secret@localhost:6380/4"


def test_a_connection_by_a_unix_socket_goes_to_the_same_database(make_app, redis_server, redis_url):
    """kombu has another name for such URLs, `redis+socket://`, and another one for the database."""
    # TLS has no meaning there, for the engine as well.
    app = make_app(broker=f"unix://{redis_server.socket_path}?db=3", broker_use_ssl=True)

    with app.connection() as connection:
        connection.ensure_connection(max_retries=1)
        client = connection.default_channel.client
        client.set("told", "by kombu")

    assert client_of(app).pool.command("GET", "told") == b"by kombu"


def test_a_pool_that_is_empty_says_which_setting_to_raise(connected):
    """Of connections and of producers."""
    with (
        connected.connection_or_acquire(),
        pytest.raises(OperationalError, match=r"broker_pool_limit \(currently 1\)"),
        connected.connection_or_acquire(),
    ):
        pass


def test_a_producer_sends_kombus_messages(connected):
    """To queues of kombu's own, as some programs do beside their tasks."""
    with connected.producer_or_acquire() as producer:
        assert isinstance(producer, Producer)
        producer.publish({"a": 1}, routing_key="beside", serializer="json")

    with connected.connection_for_read() as connection:
        message = connection.SimpleQueue("beside").get(timeout=60)
        assert message.payload == {"a": 1}
        message.ack()


def test_a_channel_finds_no_tasks_in_kombus_queues(connected):
    """Tasks wait in Sidekiq's queues, so a purge of kombu's leaves them alone; `control.purge` deletes them."""

    @connected.task
    def waits():
        """Nothing runs it here."""

    waits.delay()

    with connected.connection_for_write() as connection:
        assert connection.default_channel.queue_purge(queue="celery") == 0

    assert connected.control.purge() == 1


def test_a_connection_has_the_settings_of_the_broker(make_app):
    """Unless they are given."""
    app = make_app(broker="redis://user:pw@host:7000/3", broker_transport_options={"socket_timeout": 5})

    connection = app.connection(transport_options={"mine": 1})

    assert (connection.hostname, connection.port, connection.virtual_host) == ("host", 7000, "3")
    assert connection.transport_options == {"socket_timeout": 5, "mine": 1}
    assert app.connection_for_write("redis://other/1").hostname == "other"


def test_a_fork_has_ids_of_its_own():
    """And is told of; the parent stays what it was."""
    done = subprocess.run(
        [sys.executable, "-c", FORK],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'compat'}"},
        timeout=60,
        check=True,
    )

    assert done.stdout.split("\n")[:2] == ["forked True True", "parent True"]


def reply_seconds(connection):
    """How long the socket of a kombu connection waits for a reply."""
    made = connection.default_channel.client.connection_pool.make_connection()
    made.connect()
    seconds = made._sock.gettimeout()
    made.disconnect()
    return seconds


def test_kombu_waits_five_seconds_for_a_reply_as_the_engine_does(make_app, redis_url):
    """Remote control must not stand still because a firewall has forgotten a connection, and nobody hears of it."""
    with make_app(broker=redis_url).connection_for_read() as connection:
        assert reply_seconds(connection) == 5


def test_kombu_waits_for_a_reply_as_long_as_the_setting_says(make_app, redis_url):
    """It is the setting for the engine's connections, too."""
    app = make_app(broker=redis_url, broker_transport_options={"socket_timeout": 7})

    with app.connection_for_write() as connection:
        assert reply_seconds(connection) == 7


def test_a_broker_that_is_not_redis_gets_no_option_of_redis(make_app):
    """The bridge connects to such brokers, and their transports refuse unknown options."""
    assert make_app().connection_for_read("amqp://localhost//").transport_options == {}
