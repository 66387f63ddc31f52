"""`sidekiq-py cron`: the timetable on the command line."""

from collections.abc import Mapping
from typing import Any

import click

from sidekiq_py import program
from sidekiq_py.cli.choosing import ask, yes_option
from sidekiq_py.cli.connection import completes, pushes_jobs, reads_redis
from sidekiq_py.cli.output import DefaultsToList, echo_json, echo_json_array, echo_table, iso_time, plain, relative
from sidekiq_py.cli.values import json_arguments, span_seconds
from sidekiq_py.errors import ConfigError, JobDeclarationError
from sidekiq_py.extensions.periodic import store
from sidekiq_py.extensions.periodic.cron_jobs import CronJob, CronJobs
from sidekiq_py.extensions.periodic.cron_text import CronText, CronTextError, check_zone, parse
from sidekiq_py.extensions.periodic.declared import OVERLAPS, make
from sidekiq_py.extensions.periodic.layout import tick_text
from sidekiq_py.logs import counted
from sidekiq_py.options import closest
from sidekiq_py.redaction import current
from sidekiq_py.wire.control_characters import escaped
from sidekiq_py.wire.json_writer import json_text

# In an error about a name that no job has.
_MOST_NAMED = 20

_TIME = "%Y-%m-%d %H:%M:%S %z"

_complete_name = completes(lambda pool: [job.name for job in CronJobs(pool=pool)])


@click.group(cls=DefaultsToList)
def cron() -> None:
    """
    List, run, enable and disable periodic jobs, Ruby's and Python's.

    Without a command, lists them.

    \b
    sidekiq-py cron list
    sidekiq-py cron disable report --reason "the source is down"
    sidekiq-py cron next "30 2 * * * Europe/Berlin" --count 5
    """


@cron.command("list")
@reads_redis
def list_jobs(as_json: bool = False) -> None:
    """
    Show all periodic jobs, with their next ticks.

    BY is the Python program that declares a job, `python` for a job that was added by hand, and `ruby` for Ruby's. Jobs
    of other schedulers in this Redis are listed below.
    """
    jobs = CronJobs()
    # `list(jobs)` would read all of them twice, once for their number.
    found, others = list(iter(jobs)), jobs.others()
    if as_json:
        echo_json_array([*map(_as_dict, found), *others])
        return
    if not found and not others:
        click.echo("There are no periodic jobs. Declare one: sidekiq.periodic('*/5 * * * *', report)")
        return
    now = store.redis_now(jobs.pool)
    rows = [_row(job, now) for job in found]
    rows += [_row_of_other(entry) for entry in others]
    echo_table(("NAME", "CRON", "CLASS", "NEXT", "BY", ""), rows)


@cron.command()
@click.argument("name", shell_complete=_complete_name)
@reads_redis
def show(name: str, as_json: bool) -> None:
    """Show one periodic job."""
    job = _found(name)
    _refuse_unread(job)
    if as_json:
        echo_json({**_as_dict(job, ticks=5), "history": job.history(), "runs": _runs(job), "lost": _lost(job)})
        return
    rows = [
        (key.replace("_", " "), value if isinstance(value, str) else json_text(value))
        for key, value in _as_dict(job, ticks=5).items()
        if value not in (None, "", []) and (job.is_enabled or key != "next_ticks")
    ]
    echo_table(("FIELD", "VALUE"), rows)
    for tick in _lost(job):
        click.echo(f"The tick of {tick} was claimed by a Ruby process that died before it pushed the job.")


@cron.command("next")
@click.argument("name", shell_complete=_complete_name)
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=10, help="How many (10).")
@click.option("--tz", metavar="ZONE", help="Time zone, for a cron text without one.")
@reads_redis
def next_ticks(name: str, count: int, tz: str | None, as_json: bool) -> None:
    """Show the next ticks of a job, or of a cron text."""
    jobs = CronJobs()
    job = jobs.find(name)
    if job is not None:
        _refuse_unread(job)
    if job is not None and tz is not None:
        raise click.UsageError(f"--tz is for a cron text; {name} is a periodic job, with the text {job.cron}")
    ticks = job.next_ticks(count) if job is not None else jobs.next_ticks(_cron_text(jobs, name, tz), count)
    if job is not None and job.stored.is_for_ruby:
        raise click.ClickException(f"the next ticks of the periodic job {name} cannot be shown: {job.problem}")
    if job is not None and not ticks and job.problem:
        raise click.ClickException(f"the periodic job {name} never fires: {job.problem}")
    if as_json:
        echo_json_array(tick.isoformat() for tick in ticks)
        return
    for tick in ticks:
        click.echo(tick.strftime(_TIME))
    if job is not None and not job.is_enabled:
        click.echo(f"{name} is disabled: it fires at none of these times until it is enabled.", err=True)


@cron.command()
@click.argument("name", shell_complete=_complete_name)
@pushes_jobs
@reads_redis
def run(name: str, as_json: bool) -> None:
    """Push a periodic job's job now, and print its id."""
    jid = _found(name).run()
    if jid is None:
        raise click.ClickException("a client middleware stopped the push; nothing was enqueued")
    if as_json:
        echo_json({"name": name, "jid": jid})
    else:
        click.echo(jid)


@cron.command()
@click.argument("names", shell_complete=_complete_name, nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="All that are disabled, of both languages.")
@click.option("--reason", metavar="TEXT", help="With --all: only those that were disabled with this reason.")
@yes_option
@reads_redis
def enable(names: tuple[str, ...], everything: bool, reason: str | None, yes: bool, as_json: bool) -> None:
    """
    Let periodic jobs fire again. Ticks that passed in the meantime are not made up for.

    Give names, or --all.
    """
    _check_which("enable", names, everything)
    if reason is not None and not everything:
        raise click.UsageError("--reason chooses among all disabled jobs; add --all, and leave out the names")
    if everything:
        which = "disabled" if reason is None else f"disabled with the reason {reason!r}"
        ask(lambda: f"Enable all periodic jobs that are {which}, of both languages", what="enable --all", unless=yes)
        _print(CronJobs().enable_all(reason=reason), "enabled", as_json, in_total=True)
        return
    jobs = [_found(name) for name in dict.fromkeys(names)]
    for job in jobs:
        job.enable()
    _print(jobs, "enabled", as_json)


@cron.command()
@click.argument("names", shell_complete=_complete_name, nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="All that are enabled, of both languages.")
@click.option("--reason", default="", metavar="TEXT", help="Text to show in listings.")
@yes_option
@reads_redis
def disable(names: tuple[str, ...], everything: bool, reason: str, yes: bool, as_json: bool) -> None:
    """
    Stop periodic jobs from firing until they are enabled.

    Give names, or --all. Those that are already disabled keep their reason, so that you can end a pause of all others:

    \b
    sidekiq-py cron disable --all --reason maintenance
    sidekiq-py cron enable --all --reason maintenance
    """
    _check_which("disable", names, everything)
    if everything:
        ask(lambda: "Disable all periodic jobs, of both languages", what="disable --all", unless=yes)
        _print(CronJobs().disable_all(reason), "disabled", as_json, in_total=True)
        return
    jobs = [_found(name) for name in dict.fromkeys(names)]
    for job in jobs:
        job.disable(reason)
    _print(jobs, "disabled", as_json)


def _check_which(command: str, names: tuple[str, ...], everything: bool) -> None:
    if bool(names) == everything:
        raise click.UsageError(f"which periodic jobs? Give names, or --all: sidekiq-py cron {command} --all")


@cron.command()
@click.argument("name")
@click.argument("text", metavar="CRON")
@click.argument("job_class", metavar="CLASS")
@click.argument("args", metavar="[ARGS]", default="[]")
@click.option("-q", "--queue", help="Queue to push to; else the job's own, or default.")
@click.option("--tz", metavar="ZONE", help="Time zone; else the one at the end of CRON, or UTC.")
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default="allow",
    help="skip: skip a tick while the last run is still going.",
)
@click.option(
    "--catch-up", callback=span_seconds, metavar="SPAN", help="Make up for ticks missed within this span: 1h, 2d."
)
@click.option(
    "--jitter",
    callback=span_seconds,
    default="0",
    metavar="SPAN",
    help="Delay each push by up to this long, at random: 30s, 5m.",
)
@click.option("--description", default="", help="Text to show in listings.")
@yes_option
@pushes_jobs
@reads_redis
def add(name: str, text: str, job_class: str, args: str, yes: bool, as_json: bool, **given: Any) -> None:
    """
    Add a periodic job that no program declares. Asks before it replaces one, of either language.

    \b
    sidekiq-py cron add nightly "0 3 * * * Europe/Berlin" Cleaner '["logs"]' --overlap skip
    """
    given |= {"name": name, "args": json_arguments(args)}
    # An error is reported before anyone is asked.
    try:
        new = make(text, job_class, **given)
    except JobDeclarationError as error:
        raise ConfigError(str(error)) from error
    jobs = CronJobs()
    old = jobs.find(name, new.entry.namespace)
    if old is not None and not old.declared_by:
        ask(lambda: f"Replace {_described(old)}", what=f"add would replace {_described(old)}, so it", unless=yes)
    job = jobs.add(text, job_class, **given)
    _print([job], "added" if old is None else "replaced", as_json)


@cron.command()
@click.argument("names", shell_complete=_complete_name, nargs=-1, required=True, metavar="NAME...")
@yes_option
@reads_redis
def remove(names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """
    Delete periodic jobs.

    One that a program still declares comes back when a worker of that program starts: disable such a job instead.
    """
    jobs = [_found(name) for name in dict.fromkeys(names)]
    ask(lambda: f"Remove {', '.join(job.name for job in jobs)}", what="remove", unless=yes)
    for job in jobs:
        job.remove()
        if job.declared_by:
            from sidekiq_py.doctor.finding import command_line  # for this advice alone

            click.echo(
                f"{job.name} will come back if {job.declared_by} still declares it and a worker of that program "
                "starts. In that case, disable it instead: "
                + command_line(program.settings().redis.namespace, "cron", "disable", operands=[job.name]),
                err=True,
            )
    _print(jobs, "removed", as_json)


@cron.command()
@click.argument("name", shell_complete=_complete_name)
@reads_redis
def history(name: str, as_json: bool) -> None:
    """
    Show the last ticks of a job, and how each ended.

    Only ticks that Python has fired or skipped are listed. OUTCOME is `pushed` until a Python worker has run the job.
    For runs in Ruby it stays `pushed`. TOOK is the time of the last attempt; for an iterable job that was interrupted,
    the time since it was resumed.
    """
    job = _found(name)
    if as_json:
        echo_json_array(_runs(job))
        return
    rows = [
        (
            tick_text(run.tick) if run.tick else "by hand",
            run.jid or "-",
            run.outcome,
            "-" if run.seconds is None else f"{run.seconds:.2f} s",
        )
        for run in job.runs()
    ]
    if rows:
        echo_table(("TICK", "JID", "OUTCOME", "TOOK"), rows, right=("TOOK",))
    else:
        click.echo(f"Python has not fired it yet. {_why_not_fired(job)}".rstrip())


def _why_not_fired(job: CronJob) -> str:
    """As far as Redis tells it."""
    pushes = job.history()
    by_ruby = f" Ruby last pushed it at {plain(str(pushes[0].get('enqueued')))}." if pushes else ""
    if job.stored.is_for_ruby or not (job.is_python or job.problem):
        return f"It is Ruby's, which fires it.{by_ruby}"
    if job.problem:
        return f"It never fires: {plain(job.problem)}."
    if not job.is_enabled:
        return f"It is disabled{f': {plain(job.reason)}' if job.reason else ''}.{by_ruby}"
    since = job.stored.own.since
    first = next(iter(job.next_ticks(after=since)), None)
    if first is None:
        return "Its cron text has no tick."
    if first.timestamp() + job.jitter > store.redis_now(CronJobs().pool):
        return (
            f"It is first due at {first.strftime(_TIME)}: what was due before {tick_text(int(since))}, when it was "
            f"declared, changed or enabled, does not count.{by_ruby}"
        )
    # Without a time, another program has written there.
    if by_ruby or not since:
        return by_ruby.strip()
    return (
        f"Its first tick was at {first.strftime(_TIME)}, and no Python worker has fired that one or a later one: "
        "`sidekiq-py processes` shows which run, and their logs say what keeps them from it."
    )


def _found(name: str) -> CronJob:
    jobs = CronJobs()
    job = jobs.find(name)
    if job is None:
        raise ConfigError(_missing(jobs, name))
    return job


def _refuse_unread(job: CronJob) -> None:
    """Nothing is known of such a job, and defaults would be believed."""
    if job.stored.is_unread:
        raise click.ClickException(
            f"the periodic job {job.name} cannot be shown: {job.problem}\n"
            "docs/redis.md lists the rights that each program needs."
        )


def _missing(jobs: CronJobs, name: str) -> str:
    names = [escaped(job.name) for job in jobs]
    if len(names) <= _MOST_NAMED:
        return f"there is no periodic job {name!r}; there are: {', '.join(names) or 'none'}"
    close = closest(name, names)
    meant = f". Did you mean {close}?" if close is not None else f" among {len(names):,}."
    return f"there is no periodic job {name!r}{meant} sidekiq-py cron list shows all"


def _cron_text(jobs: CronJobs, text: str, zone: str | None) -> CronText:
    """A cron text that was given where the name of a job may stand. The error is right for either."""
    try:
        if zone:
            check_zone(zone)
        found = parse(text, zone=zone)
    except CronTextError as error:
        if error.text == zone:
            raise ConfigError(f"--tz: {error.reason}") from error
        # A name may begin with a digit, too.
        if text[:1] in set("*0123456789") and " " in text:
            raise
        raise ConfigError(f"{_missing(jobs, text)}. And it cannot be read as a cron text: {error}") from error
    if zone is not None and found.zone != zone:
        raise ConfigError(f"the cron text names the zone {found.zone}, and --tz another one; give one of them")
    return found


def _described(job: CronJob) -> str:
    """What would be lost with a job."""
    what = f"{job.klass} at {job.cron}" if job.klass else str(job.problem)
    return plain(f"{job.name}, a periodic job of {'Python' if job.is_python else 'Ruby'}'s ({what})")


def _row(job: CronJob, now: float) -> tuple[str, ...]:
    by = job.declared_by or ("python" if job.is_python else "ruby")
    if job.problem:
        return job.name, job.cron, job.klass, "-", by, job.problem
    if not job.is_enabled:
        return job.name, job.cron, job.klass, "-", by, f"disabled: {job.reason}" if job.reason else "disabled"
    ticks = job.stored.next_ticks(now)
    return job.name, job.cron, job.klass, relative(ticks[0], now) if ticks else "never", by, ""


def _row_of_other(entry: Mapping[str, Any]) -> tuple[str, ...]:
    texts = (str(entry.get(key) or "") for key in ("name", "cron", "class", "next", "by"))
    return *texts, "" if entry.get("enabled", True) else "disabled"


def _as_dict(job: CronJob, *, ticks: int = 1) -> dict[str, Any]:
    """Its fields as they may be printed, without redacted values."""
    return current().apply(job.to_dict(ticks=ticks))


def _runs(job: CronJob) -> list[Mapping[str, Any]]:
    return [
        {
            "tick": tick_text(run.tick) if run.tick else None,
            "jid": run.jid,
            "pushed_at": iso_time(run.pushed_at),
            "outcome": run.outcome,
            "ended_at": None if run.ended_at is None else iso_time(run.ended_at),
            "seconds": run.seconds,
        }
        for run in job.runs()
    ]


def _lost(job: CronJob) -> list[str]:
    return [tick.isoformat() for tick in job.lost_ticks()]


def _print(jobs: list[CronJob], done: str, as_json: bool, *, in_total: bool = False) -> None:
    if as_json:
        echo_json_array({"name": job.name, done: True} for job in jobs)
    elif in_total:
        click.echo(f"{counted(len(jobs), 'periodic job')} {done}.")
    else:
        for job in jobs:
            click.echo(f"{plain(job.name)}: {done}")
