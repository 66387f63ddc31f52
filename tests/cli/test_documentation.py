"""`docs/command_line.md` matches the program."""

import json
import re
import shlex
import time
from pathlib import Path

import click
import pytest

from sidekiq_py.cli import COMMANDS, main
from tests.cli.test_queues import process

PAGE = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()
_ELSEWHERE = {"worker", "demo"}


@pytest.fixture
def full(redis_client):
    """The fleet and the queues that the page shows."""
    process(redis_client, "rails-1:7:3f6a0c1d9b2e", "critical", "default", version="8.1.7")
    process(redis_client, "rails-2:7:b81e77aa0c54", "default", version="8.1.7")
    process(redis_client, "models-1:12:9e02d4c7f1ab", "fraud", "low", labels=["sidekiq_py"], version="8.1.7")
    for queue in ("default", "fraud", "low"):
        redis_client.sadd("queues", queue)
        for number in range(3):
            job = {"class": "Thumbnail", "args": [f"A-100{number}"], "jid": str(number), "queue": queue}
            redis_client.lpush(f"queue:{queue}", json.dumps({**job, "enqueued_at": time.time()}))
    for key in ("retry", "schedule", "dead"):
        job = {"class": "Sync", "args": [key], "jid": key, "queue": "default", "error_class": "Net::ReadTimeout"}
        redis_client.zadd(key, {json.dumps({**job, "retry": True}): time.time()})
    return redis_client


def test_every_command_of_the_page_runs(run, full):
    """In the page's order, each with exit code 0."""
    commands = re.findall(r"^\$ sidekiq-py (.*)$", PAGE, re.MULTILINE)

    results = [(line, run(*shlex.split(line, comments=True))) for line in commands]

    assert len(commands) > 20
    assert [(line, result.output) for line, result in results if result.exit_code != 0] == []


def test_every_command_stands_on_the_page():
    """Subcommands are included; `worker` and some others have their own pages."""
    context = click.Context(main)
    for name in set(COMMANDS) - _ELSEWHERE:
        command = main.get_command(context, name)
        assert f"sidekiq-py {name}" in PAGE
        for sub in command.list_commands(context) if isinstance(command, click.Group) else ():
            assert re.search(rf"{name}\|?[^\n]* {sub}|`{sub}", PAGE), f"{name} {sub}"


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["queues"], "name, size, latency, paused, in_flight, error"),
        (["processes"], None),
        (["retries", "list"], None),
        (["queues", "show", "low"], None),
        (["queues", "move", "low", "default", "--yes"], "moved, gone, refused, errors, missing"),
        (["queues", "delete", "low", "--yes"], "queue, deleted"),
        (["queues", "unpause", "low"], "queue, paused, changed"),
        (["recover"], "recovered, alive, waiting"),
        (["push", "FraudCheck"], "jid, class, at"),
        (["stats"], None),
        (["find", "retry"], None),
        (["find", "--arg", "retry"], None),
        (["scheduled", "reschedule", "schedule", "--in", "5m"], "moved, gone, refused, errors, missing"),
        (["retries", "list", "--by", "class"], "jobs, groups, not_grouped, counts"),
        (["processes", "dump", "--all"], "sent, refused"),
    ],
)
def test_the_shapes_of_json_stand_on_the_page(run, full, words, keys):
    """Each key of each shape, in order."""
    found = json.loads(run(*words, "--json").stdout)
    shape = ", ".join(found[0] if isinstance(found, list) else found)

    assert keys in (None, shape)
    assert f"{{{shape}}}" in " ".join(PAGE.split())


def test_the_options_of_filters_stand_on_the_page():
    """The page lists no other options."""
    table = PAGE.split("**Filters.**")[1].split("## top")[0]
    listed = set(re.findall(r"`(--[a-z]+) [A-Z]+`", table))
    show = main.get_command(click.Context(main), "dead").get_command(click.Context(main), "list")
    options = {option for parameter in show.params for option in parameter.opts if option.startswith("--")}

    assert listed <= options
    assert listed == options - {"--by", "--limit", "--json", "--redis-url", "--namespace"}
