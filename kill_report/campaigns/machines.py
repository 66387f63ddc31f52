"""
Two machines, each with its own network, PID, host name and mount namespace and its own boot id; Redis is on a third.

Both have the same host name, and all workers have process id 1, because each is the first process of its PID namespace.
The second machine's clock is wrong by an hour. The first is cut off from Redis, sometimes for longer than the lease:
then the other one runs its jobs too, because a machine that is cut off cannot be told from one that has burnt down.
"""

import itertools
import json
import os
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kill_report.campaigns.process_kills import JOBS_PER_KILL, QUEUES, finish
from kill_report.programs.wrong_clock import set_clock
from kill_report.stage import PATIENCE_SECONDS, Stage
from tests.kill.conftest import Fleet
from tests.support.ledger import Ledger
from tests.support.process_states import children_of
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY, SidekiqProcess

DEEDS = 12
LEASE_SECONDS = 3
WORKERS = 2
HOST_NAME = "web-1"
# The ledger distinguishes processes by their ids, which are all the same here: each gets its own file and number.
_generations = itertools.count(1)


@dataclass(slots=True)
class Machine:
    """
    One of the two machines.

    Args:
        name: The name of its network namespace, at most 12 letters.
        subnet: The third number of its network 10.77.x.0/24: `.1` is the host, `.2` this machine.
        wrong_by: The error of its clock in seconds.
    """

    name: str
    subnet: int
    wrong_by: float
    boot_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def gateway(self) -> str:
        """The address at which it reaches Redis."""
        return f"10.77.{self.subnet}.1"

    def build(self, stage: Stage) -> None:
        """Create the namespace and a cable to it."""
        outer, inner = f"{self.name}-o", f"{self.name}-i"
        _ip(f"netns add {self.name}")
        stage.exits.callback(_ip, f"netns delete {self.name}")
        _ip(f"link add {outer} type veth peer name {inner} netns {self.name}")
        _ip(f"address add {self.gateway}/24 dev {outer}")
        _ip(f"link set {outer} up")
        _ip(f"-n {self.name} address add 10.77.{self.subnet}.2/24 dev {inner}")
        _ip(f"-n {self.name} link set {inner} up")
        _ip(f"-n {self.name} link set lo up")
        (stage.folder / f"{self.name}.boot").write_text(f"{self.boot_id}\n")
        set_clock(stage.folder / f"{self.name}.clock", self.wrong_by)

    def plug(self, is_in: bool) -> None:
        """Connect or disconnect the cable; packets are lost silently."""
        _ip(f"link set {self.name}-o {'up' if is_in else 'down'}")

    def wait_for_redis(self, port: int) -> None:
        """Wait until Redis is reachable: a reconnected cable is dead for a moment, on a busy machine for seconds."""
        connect = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"
        command = ["ip", "netns", "exec", self.name, sys.executable, "-S", "-c", connect, self.gateway, str(port)]
        eventually(lambda: subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0, 60, 0.2)

    def start(self, stage: Stage, port: int) -> "Guest":
        """Start a worker on this machine."""
        generation = next(_generations)
        ledger = stage.folder / f"ledger-{generation}"
        settings: dict[str, Any] = {
            "redis_url": f"redis://{self.gateway}:{port}/0",
            "ledger": str(ledger),
            "lease_seconds": LEASE_SECONDS,
            "socket_timeout_seconds": 1,
            "queues": QUEUES,
        }
        clock, boot = stage.folder / f"{self.name}.clock", stage.folder / f"{self.name}.boot"
        worker = [sys.executable, "-m", "kill_report.programs.wrong_clock", str(clock), json.dumps(settings)]
        inside = f"hostname {HOST_NAME}; mount --bind {boot} /proc/sys/kernel/random/boot_id; exec {shlex.join(worker)}"
        namespaces = ["unshare", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child", "sh", "-c", inside]
        guest = Guest(self, generation, Ledger(ledger), ["ip", "netns", "exec", self.name, *namespaces], port)
        guest.start()
        stage.exits.callback(guest.stop_at_once)
        return guest


class Guest(SidekiqProcess):
    """A worker on a machine; *generation* is its number in the round's ledger."""

    def __init__(self, machine: Machine, generation: int, ledger: Ledger, command: list[str], port: int) -> None:
        super().__init__(command, redis_url=f"redis://127.0.0.1:{port}/0", environment={"PYTHONPATH": str(REPOSITORY)})
        self.machine = machine
        self.generation = generation
        self.ledger = ledger

    def stop_at_once(self) -> None:
        """Kill the worker at the end of a round."""
        if self.is_running:
            Stage.end_tree(self.pid)
            self.wait()

    def inner_pid(self) -> int:
        """The process id of the worker itself, as seen from the host."""
        [pid] = eventually(lambda: children_of(self.pid), 30)
        return pid


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


def machines(stage: Stage) -> set[int]:
    """Machines are cut off, and workers are killed and restarted at random."""
    server = stage.start_redis(config={"bind": "0.0.0.0", "protected-mode": "no"})
    mark = os.getpid() % 100_000
    pair = [Machine(f"a{mark}", 1 + mark % 100, 0.0), Machine(f"b{mark}", 101 + mark % 100, 3600.0)]
    for machine in pair:
        machine.build(stage)
        machine.wait_for_redis(server.port)
    fleet = stage.fleet(server)
    guests = [machine.start(stage, server.port) for machine in pair for _ in range(WORKERS)]
    known = list(guests)
    for number in range(stage.scaled(DEEDS)):
        stage.push(fleet, stage.scaled(JOBS_PER_KILL))
        if number % 3 == 0:
            # A worker that cannot reach Redis when it starts exits immediately, as Ruby's does.
            for guest in guests:
                eventually(partial(_is_at_work, stage, fleet, guest), PATIENCE_SECONDS, 0.2)
            _cut_off(stage, pair[0], known, LEASE_SECONDS * 4 if number % 2 else LEASE_SECONDS / 3)
            pair[0].wait_for_redis(server.port)
        else:
            at = stage.draw.randrange(len(guests))
            guest = guests[at]
            stage.incidents.deaths[guest.generation] = time.monotonic()
            stage.kinds[guest.generation] = "worker on one of two machines"
            os.kill(guest.inner_pid(), 9)
            guest.wait()
            stage.faults["SIGKILL: worker on one of two machines"] += 1
            guests[at] = guest.machine.start(stage, server.port)
            known.append(guests[at])
        time.sleep(stage.draw.uniform(0, 1))
    found = finish(stage, fleet)
    _merge(stage, known)
    return found


def _is_at_work(stage: Stage, fleet: Fleet, guest: Guest) -> bool:
    if not guest.is_running:
        raise RuntimeError(f"a worker ended; its log:\n{guest.log_tail()}")
    if not fleet.waiting:
        stage.push(fleet, 100)
    return guest.ledger.count("S") > 0


def _cut_off(stage: Stage, machine: Machine, guests: list[Guest], seconds: float) -> None:
    """Cut off a machine. Other workers may also run the jobs that its workers run during that time."""
    began = time.monotonic()
    machine.plug(False)
    time.sleep(seconds)
    machine.plug(True)
    is_long = seconds > LEASE_SECONDS
    stage.faults[f"machine cut off for {'longer' if is_long else 'less'} than the lease"] += 1
    # Until its workers have noticed that they were declared dead.
    until = time.monotonic() + 2 * LEASE_SECONDS
    for guest in guests:
        if guest.machine is not machine:
            continue
        if is_long:
            stage.excuse(guest.generation, began, until, "its machine was cut off for longer than the lease")
        else:
            # TCP sends lost packets again after pauses, each twice as long as the one before it: the last one may end
            # as long after the cut as the cut was.
            stage.incidents.cuts.setdefault(guest.generation, []).append((began, began + 2 * seconds))


def _merge(stage: Stage, guests: list[Guest]) -> None:
    """Merge the ledgers into one, with the workers' numbers instead of their process ids."""
    lines: list[str] = []
    for guest in guests:
        for line in Path(guest.ledger.path).read_text().rpartition("\n")[0].splitlines():
            event, number, _, thread, at = line.split()
            lines.append(f"{event} {number} {guest.generation} {thread} {at}\n")
    stage.ledger.path.write_text("".join(lines))


CAMPAIGNS: list[tuple[str, str, Callable[[Stage], set[int]], int]] = [
    ("machines", "Two machines with the same host name and process ids, one wrong clock, and a partition", machines, 5),
]
