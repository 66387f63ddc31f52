"""
The pages of the dashboard: all periodic jobs of both languages, and a single one. Imported when a dashboard asks for
them, because they need the extra `web`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sidekiq_py.api.job_record import JobRecord
from sidekiq_py.errors import ConfigError
from sidekiq_py.extensions.periodic.cron_jobs import CronJob, CronJobs
from sidekiq_py.logs import counted
from sidekiq_py.web import Page, PageAction, Visit

_JOBS_SHOWN = 100
_TICKS_SHOWN = 10
_RUNS_SHOWN = 100
_LONGEST_REASON = 500
_LONGEST_NAME = 200
_REMOVAL = "If a program declares the job, it comes back after you remove it. Disable it instead."
_ALL_QUESTIONS = {"disable": "Disable all periodic jobs?", "enable": "Enable all periodic jobs?"}
_ALL_ADVICE = {
    "disable": "None fires, in either language, until it is enabled.",
    "enable": "Those that were disabled for another reason will fire, too.",
}
_TEMPLATES = Path(__file__).with_name("templates")


def pages() -> list[Page]:
    """The pages of this extension."""
    templates = {path.name: path.read_text("utf-8") for path in _TEMPLATES.iterdir()}
    return [
        Page("Periodic", "/cron", _list, templates, (PageAction("/cron/act", _act),)),
        Page("Periodic job", "/cron/job", _show, is_listed=False),
    ]


def _list(visit: Visit) -> Any:
    """A hundred of the periodic jobs, and as many of other schedulers' entries, on each page."""
    jobs, now, start = CronJobs(pool=visit.pool), visit.now.timestamp(), visit.query_number("from")
    wanted = visit.query("name").strip()[:_LONGEST_NAME]
    (ours, count), others = jobs.page(start, _JOBS_SHOWN, name=wanted), [_texts(entry) for entry in jobs.others()]
    others = [entry for entry in others if wanted.casefold() in entry["name"].casefold()]
    return visit.page(
        "cron.html",
        rows=[(job, _shown(visit, job), next(iter(job.stored.next_ticks(now)), None)) for job in ours],
        others=others[start : start + _JOBS_SHOWN],
        is_empty=not count,
        wanted=wanted,
        questions={action: f"{question} {_ALL_ADVICE[action]}" for action, question in _ALL_QUESTIONS.items()},
        total=max(count, len(others)),
        start=start,
        shown=_JOBS_SHOWN,
    )


def _show(visit: Visit) -> Any:
    job = CronJobs(pool=visit.pool).find(visit.query("name"), visit.query("namespace") or None)
    if job is None:
        return visit.error(404, "There is no such periodic job", "It may have been removed.")
    runs = [
        {
            "at": datetime.fromtimestamp(run.tick or run.pushed_at, UTC),
            "tick": run.tick,
            "outcome": run.outcome,
            "jid": run.jid,
            "seconds": run.seconds,
        }
        for run in job.runs()[:_RUNS_SHOWN]
    ]
    return visit.page(
        "cron_job.html",
        job=job,
        shown=_shown(visit, job),
        ticks=job.stored.next_ticks(visit.now.timestamp(), _TICKS_SHOWN),
        lost=job.lost_ticks(),
        runs=runs,
        history=job.history(),
        removal=_REMOVAL,
    )


def _act(visit: Visit) -> Any:
    name, namespace, action = visit.field("name"), visit.field("namespace"), visit.field("action")
    if visit.field("all") == "1" and not name and action in _ALL_QUESTIONS:
        return _act_on_all(visit, action)
    job = CronJobs(pool=visit.pool).find(name, namespace or None)
    if job is None or action not in ("run", "enable", "disable", "remove"):
        return visit.redirect("/cron", "There is no such periodic job or action; nothing was done.")
    if action == "remove":
        asked = visit.question(f"Remove {job.name}?", _REMOVAL, path="/cron/act", back="/cron")
        if asked is not None:
            return asked
    reason = visit.field("reason").strip()[:_LONGEST_REASON]
    visit.audit(action, f"periodic job {name}", reason)
    try:
        if action == "run":
            jid = job.run()
            notice = f"{name} was pushed as {jid}." if jid else "A client middleware stopped it; nothing was pushed."
            return visit.redirect_back(notice, "/cron", "/cron/job")
        if action == "remove":
            job.remove()
            return visit.redirect("/cron", f"{name} was removed.")
        if action == "enable":
            job.enable()
        else:
            job.disable(reason)
    except ConfigError as error:
        return visit.redirect("/cron", f"Nothing was done: {error}")
    return visit.redirect_back(f"{name} is {action}d.", "/cron", "/cron/job")


def _act_on_all(visit: Visit, action: str) -> Any:
    """Enable or disable all jobs. Only with `all=1`: a form in which the name got lost must not do that."""
    asked = visit.question(_ALL_QUESTIONS[action], _ALL_ADVICE[action], path="/cron/act", back="/cron")
    if asked is not None:
        return asked
    reason = visit.field("reason").strip()[:_LONGEST_REASON]
    visit.audit(f"{action} all", "periodic jobs", reason)
    jobs = CronJobs(pool=visit.pool)
    changed = jobs.enable_all() if action == "enable" else jobs.disable_all(reason)
    jobs_are = counted(len(changed), "periodic job is", "periodic jobs are")
    return visit.redirect("/cron", f"{jobs_are} {action}d.")


def _texts(entry: Mapping[str, Any]) -> dict[str, str]:
    """The texts of an entry that another extension lists, which may hold anything."""
    fields = {name: str(entry.get(name) or "") for name in ("name", "cron", "class", "by")}
    state = "" if entry.get("enabled", True) else "disabled"
    return {**fields, "last": str(entry.get("last_enqueue_time") or ""), "state": state}


def _shown(visit: Visit, job: CronJob) -> Any:
    return visit.shown(JobRecord.of_payload({"class": job.klass, "args": job.args}))
