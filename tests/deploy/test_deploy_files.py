"""The files of deploy/ and the commands of docs/operating.md fit the program as it is."""

import configparser
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pytest
import redis

pytest.importorskip("starlette")

import yaml

from sidekiq_py.api import DeadSet
from sidekiq_py.cli import main
from sidekiq_py.doctor import examine
from sidekiq_py.metrics.fleet import fleet_text
from sidekiq_py.metrics.job_metrics import families, start_family
from sidekiq_py.web import hash_password
from tests.support.web_server import HttpClient, WebServer

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
INSTALLED_CONFIG = "/etc/shop/dashboard.yml"
OPERATING = ROOT / "docs" / "operating.md"

_METRIC = re.compile(r"\bsidekiq_[a-z_]+")
_OF_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")
# What is cut off gets three seconds, and so do the program's exit handlers.
_AFTER_THE_TIMEOUT_SECONDS = 6


def documents(path: Path) -> Iterator[dict[str, Any]]:
    """The YAML documents of a file."""
    yield from yaml.safe_load_all(path.read_text())


def parsed(words: list[str]) -> click.Context:
    """The context of a command line, whose flags and values have been checked; nothing runs."""
    words = [word.replace(INSTALLED_CONFIG, str(DEPLOY / "dashboard.example.yml")) for word in words]
    command: click.Command = main
    context = click.Context(main, info_name="sidekiq-py")
    while isinstance(command, click.Group):
        name, words = (words[0], words[1:]) if words and not words[0].startswith("-") else ("", words)
        found = command.get_command(context, name) if name else None
        if found is None:
            assert command is not main, f"no command {name!r}"
            break
        command = found
        context = click.Context(command, info_name=name, parent=context)
    return command.make_context(command.name or "", words)


def timeout_of(arguments: list[str]) -> float:
    """What `--timeout` says, or a worker's default."""
    joined = " ".join(arguments).replace("=", " ")
    found = re.search(r"--timeout (\d+)", joined)
    return float(found[1]) if found else 25.0


@pytest.mark.parametrize("name", ["python", "ruby"])
def test_a_dockerfile_has_nothing_that_hadolint_reports(name: str) -> None:
    """Its default rules."""
    tool = Path(sys.executable).parent / "hadolint"
    found = subprocess.run([tool, DEPLOY / "docker" / name / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize("name", ["worker", "dashboard"])
def test_kubernetes_knows_every_field(name: str) -> None:
    """A misspelled field would be ignored there, probes included."""
    tool = Path(sys.executable).parent / "kubernetes-validate"
    command = [str(tool), "--strict", str(DEPLOY / "kubernetes" / f"{name}.yaml")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_workers_of_kubernetes_are_given_time_to_stop() -> None:
    """More than they give their jobs."""
    deployment = next(documents(DEPLOY / "kubernetes" / "worker.yaml"))
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    parsed(container["args"])
    assert pod["terminationGracePeriodSeconds"] >= timeout_of(container["args"]) + _AFTER_THE_TIMEOUT_SECONDS
    assert container["livenessProbe"]["httpGet"]["path"] == "/live"
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"


def test_the_services_of_compose_start_what_there_is() -> None:
    """Each command of ours is one, and is given time to stop."""
    [compose] = documents(DEPLOY / "compose.yaml")
    services = compose["services"]
    for name in ("python", "dashboard"):
        parsed(services[name]["command"])
        build = services[name]["build"]
        assert (DEPLOY / build["context"] / build["dockerfile"]).resolve().is_file()
    for name in ("python", "ruby"):
        grace = float(services[name]["stop_grace_period"].removesuffix("s"))
        assert grace >= timeout_of(services[name]["command"]) + _AFTER_THE_TIMEOUT_SECONDS
    assert "noeviction" in services["redis"]["command"]


@pytest.mark.parametrize("name", ["sidekiq-py", "sidekiq-py-web"])
def test_a_unit_of_systemd_starts_what_there_is(name: str) -> None:
    """And waits long enough for it to stop."""
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "systemd" / f"{name}.service")
    service = unit["Service"]
    _, *words = shlex.split(service["ExecStart"])
    parsed(words)
    if words[0] == "worker":
        assert service["Type"] == "notify"
        # HUP kills a worker without children in the middle of its jobs.
        assert "ExecReload" not in service or "--processes" in words
        assert float(service["TimeoutStopSec"]) >= timeout_of(words) + _AFTER_THE_TIMEOUT_SECONDS
        # It exits at once while Redis is away, and systemd must not give up before Redis is back.
        assert (service["Restart"], unit["Unit"].get("StartLimitIntervalSec")) == ("always", "0")
        # By default, systemd stops all processes if the kernel kills one of them because memory is short.
        assert service.get("OOMPolicy") == "continue"


def dashboard_command(where: str) -> list[str]:
    """What starts the dashboard there."""
    if where == "systemd":
        unit = (DEPLOY / "systemd" / "sidekiq-py-web.service").read_text()
        return shlex.split(re.findall(r"^ExecStart=\S+ (.*)$", unit, re.MULTILINE)[0])
    if where == "docker":
        page = (DEPLOY / "docker" / "python" / "Dockerfile").read_text().replace("\\\n#", "")
        return shlex.split("web " + re.findall(r" web (.*)$", page, re.MULTILINE)[0])
    if where == "compose":
        return list(next(documents(DEPLOY / "compose.yaml"))["services"]["dashboard"]["command"])
    pod = next(documents(DEPLOY / "kubernetes" / "dashboard.yaml"))["spec"]["template"]["spec"]
    return list(pod["containers"][0]["args"])


@pytest.mark.parametrize("where", ["docker", "compose", "kubernetes", "systemd"])
def test_the_dashboard_lets_in_whom_its_file_names(where: str, redis_url: str, tmp_path: Path) -> None:
    """Behind a proxy as well; Prometheus shows a token."""
    config, token = tmp_path / "dashboard.yml", "t" * 32
    example = (DEPLOY / "dashboard.example.yml").read_text()
    config.write_text(example.replace("PASSWORD_HASH", hash_password("secret")).replace('"TOKEN"', f'"{token}"'))
    words = " ".join(dashboard_command(where)).replace(INSTALLED_CONFIG, str(config)).replace("4567", "{port}")
    if "{port}" not in words:
        words += " --port {port}"

    command = [sys.executable, "-m", "sidekiq_py", *words.split()]
    with WebServer(command, environment={"REDIS_URL": redis_url}, folder=ROOT) as server:
        forwarded = {"X-Forwarded-For": "192.0.2.1", "Accept": "text/plain"}
        assert HttpClient(server, forwarded).get("/metrics")[0] == 401
        status, page = HttpClient(server, {**forwarded, "Authorization": f"Bearer {token}"}).get("/metrics")

    assert (status, "sidekiq_processed_jobs_total" in page) == (200, True)


def exported(redis_url: str) -> set[str]:
    """The names of all metrics, of the fleet and of a worker."""
    of_the_fleet = {line.split()[2] for line in fleet_text(pool=redis_url).splitlines() if line.startswith("# TYPE")}
    return of_the_fleet | {family.name for family in (start_family(0), *families({}))}


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_alerts_and_board_ask_for_metrics_that_are_exported(redis_url: str) -> None:
    """A misspelled one would never fire."""
    known = exported(redis_url)
    [alerts] = documents(DEPLOY / "prometheus" / "alerts.yaml")
    expressions = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    board = json.loads((DEPLOY / "grafana" / "sidekiq.json").read_text())
    expressions += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    [scaling] = documents(DEPLOY / "kubernetes" / "scaling.yaml")
    expressions += [trigger["metadata"]["query"] for trigger in scaling["spec"]["triggers"]]

    asked = {_OF_HISTOGRAM.sub("", name) for text in expressions for name in _METRIC.findall(text)}

    assert asked
    assert asked <= known


def test_rates_on_the_board_suit_any_scrape_interval() -> None:
    """With Prometheus's default of one minute, `rate(…[1m])` sees one sample and returns nothing."""
    board = json.loads((DEPLOY / "grafana" / "sidekiq.json").read_text())
    asked = "\n".join(target["expr"] for panel in board["panels"] for target in panel["targets"])

    windows = re.findall(r"\[(.*?)\]", asked)

    assert set(windows) == {"$__rate_interval"}


def test_the_alert_on_a_full_dead_set_fires_when_it_is_full(redis_url: str, redis_client: redis.Redis) -> None:
    """The set is trimmed to one job fewer than `dead_max_jobs`, as in Ruby, so it never has 10,000."""
    [alerts] = documents(DEPLOY / "prometheus" / "alerts.yaml")
    asked = {rule["alert"]: rule["expr"] for group in alerts["groups"] for rule in group["rules"]}
    now = time.time()
    redis_client.zadd("dead", {f'{{"jid":"{number}","class":"A","args":[]}}': now for number in range(10_100)})

    DeadSet(pool=redis_url).trim()

    _, threshold = asked["SidekiqDeadSetIsFull"].split(" >= ")
    assert redis_client.zcard("dead") == int(threshold)


def test_the_alert_on_redis_s_memory_fires_when_the_doctor_warns(redis_url: str, redis_client: redis.Redis) -> None:
    """From 80 % on; both name the limit that Redis has."""
    [alerts] = documents(DEPLOY / "prometheus" / "alerts.yaml")
    asked = {rule["alert"]: rule["expr"] for group in alerts["groups"] for rule in group["rules"]}
    used, most, threshold = re.fullmatch(
        r"(\w+) / \((\w+) > 0\) > ([\d.]+)", asked["SidekiqRedisIsNearlyFull"]
    ).groups()
    limit = int(redis_client.info("memory")["used_memory"] / 0.87)

    redis_client.config_set("maxmemory", limit)
    try:
        told = dict(line.split() for line in fleet_text(pool=redis_url).splitlines() if line.startswith((used, most)))
        [finding] = [one for check, one in examine(pool=redis_url).findings() if check.name == "memory"]
    finally:
        redis_client.config_set("maxmemory", 0)

    assert int(told[most]) == limit
    assert int(told[used]) / limit > float(threshold) == 0.8
    assert finding.level == "warning"


def test_each_alert_leads_to_its_situation() -> None:
    """The page has that heading."""
    [alerts] = documents(DEPLOY / "prometheus" / "alerts.yaml")
    known = anchors_of(OPERATING)
    for group in alerts["groups"]:
        for rule in group["rules"]:
            page, _, anchor = rule["annotations"]["situation"].partition("#")
            assert (ROOT / page) == OPERATING
            assert anchor in known, rule["alert"]


def test_each_alert_has_its_tests() -> None:
    """For `promtool test rules`: one where it fires, and one where all is well."""
    [alerts] = documents(DEPLOY / "prometheus" / "alerts.yaml")
    [tested] = documents(DEPLOY / "prometheus" / "alerts_test.yaml")
    names = [rule["alert"] for group in alerts["groups"] for rule in group["rules"]]

    *wrong, well = ([one["alertname"] for one in test["alert_rule_test"]] for test in tested["tests"])
    assert (sorted(chain.from_iterable(wrong)), well) == (sorted(names), names)


def commands_of(page: Path) -> list[str]:
    """Every command line of ours on a page, without its comment."""
    text = page.read_text()
    lines = re.findall(r"^\$ (sidekiq-py [^#\n]*)", text, re.MULTILINE) + re.findall(r"`(sidekiq-py [^`\n]*)`", text)
    return [line.strip() for line in lines]


@pytest.mark.parametrize("line", sorted(set(commands_of(OPERATING))))
def test_what_the_page_tells_to_type_is_understood(line: str) -> None:
    """At night nobody wants to look for the right flag."""
    _, *words = shlex.split(line)
    parsed(words)
