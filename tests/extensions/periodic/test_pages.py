"""The timetable in the dashboard: what it shows, and its buttons."""

import json
import re
import shlex
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("starlette")

from sidekiq_celery import Celery
from sidekiq_celery._beat.persistent import PersistentScheduler

import sidekiq_py as sidekiq
from sidekiq_py.api import AuditLog, CronJobs
from sidekiq_py.clock import now_seconds
from sidekiq_py.web import Redaction, User, asgi_app
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY
from tests.web.browsing import Visitor
from tests.web.conftest import round_trips

__all__ = ["round_trips"]

SCRIPT = "\"'><script>alert(1)</script>"


@pytest.fixture
def visitor():
    """Somebody with a role."""

    def make(role="operator", **settings):
        return Visitor(asgi_app(authorize=lambda _request: User("ada", role), **settings))

    return make


@pytest.fixture
def report():
    """A periodic job of Python's."""
    return CronJobs().add(
        "*/5 * * * * Europe/Berlin", "Report", name="report", args=["weekly", {"token": "t0ken"}], description="For all"
    )


def test_periodic_jobs_are_listed(visitor, report):
    """With their text, their job, and when they run next; secrets stay hidden."""
    page = visitor("viewer").get("/cron")

    assert 'report */5 * * * * Europe/Berlin Report "weekly", {"token": "[redacted]"} default Python' in page.shown
    assert "Run now</button>" not in page.text
    assert 'aria-current="page">Periodic<' in page.text


def test_the_ticks_of_a_text_that_only_ruby_reads_are_unknown(visitor, redis_client):
    """They were said to come never; Ruby fires such a job."""
    fields = {"name": "theirs", "klass": "R", "cron": "every tuesday at 5 pm", "status": "enabled"}
    redis_client.sadd("cron_jobs:default", "cron_job:default:theirs")
    redis_client.hset("cron_job:default:theirs", mapping=fields)

    shown = visitor("viewer").get("/cron/job?name=theirs").shown

    assert "only Ruby may be able to read 'every tuesday at 5 pm'" in shown
    assert "Unknown." in shown
    assert "Never." not in shown


def test_the_list_reads_periodic_jobs_once(visitor, report, round_trips):
    """Their names, their hashes, and what other schedulers have; it once read the first two twice."""
    viewer = visitor("viewer")
    viewer.get("/cron")

    with round_trips() as made:
        viewer.get("/cron")

    assert made.count == 4


def test_a_page_of_the_list_reads_only_its_jobs(visitor, redis_client, round_trips):
    """A fleet may have ten thousand, of which a page shows a hundred."""
    for number in range(250):
        CronJobs().add("@daily", "Report", name=f"job {number:03}")
    viewer = visitor("viewer")

    with round_trips() as made:
        page = viewer.get("/cron?from=200")

    assert made.commands < 120
    assert ("job 199" in page.shown, "job 200" in page.shown, "job 249" in page.shown) == (False, True, True)


def test_entries_of_beat_are_rows_without_buttons(visitor, redis_url):
    """Read-only, beside those of sidekiq-scheduler: name, schedule, task, whose they are."""
    app = Celery("shop", broker=redis_url)
    app.conf.beat_schedule = {f"report {SCRIPT}": {"task": "shop.report", "schedule": 10.0}}
    PersistentScheduler(app=app)

    page = visitor().get("/cron")

    assert f"report {SCRIPT} every 10.00 seconds shop.report celery beat shop" in page.shown
    assert SCRIPT not in page.text
    assert "Run now</button>" not in page.text


def test_what_another_scheduler_does_not_fire_is_shown_as_disabled(visitor, redis_client):
    """As the jobs of the timetable are."""
    redis_client.hset("schedules", "report", '{"cron":"0 9 * * *","class":"Report","enabled":false}')

    assert "report 0 9 * * * Report sidekiq-scheduler disabled" in visitor().get("/cron").shown


@pytest.mark.parametrize("path", ["/cron", "/cron/job?name=report"])
def test_ticks_that_fired_before_the_clock_was_set_back_are_not_to_come(visitor, report, redis_client, path):
    """None fires twice."""
    fired = int(now_seconds()) // 3600 * 3600 + 7200
    redis_client.hset("sidekiq_py:cron:cron_job:default:report", "fired", fired)

    first = datetime.fromtimestamp(fired + 300, ZoneInfo("Europe/Berlin"))
    assert f"{first:%Y-%m-%d %H:%M}" in visitor().get(path).text


@pytest.mark.parametrize("path", ["/cron", "/cron/job?name=report"])
def test_the_queue_of_a_periodic_job_leads_to_its_page(visitor, report, path):
    """As everywhere else on the dashboard."""
    assert '<a href="/queue?name=default">default</a>' in visitor().get(path).text


def test_one_is_shown_with_its_next_ticks_and_its_history(visitor, report, redis_client):
    """Ticks in its own zone."""
    jid = report.run()

    page = visitor().get("/cron/job?name=report&namespace=default")

    assert "For all" in page.shown
    assert page.text.count("+01:00)") + page.text.count("+02:00)") == 10
    assert jid in page.shown


@pytest.mark.parametrize("path", ["/cron", "/cron/job?name=report"])
def test_one_without_a_queue_leads_nowhere(visitor, report, redis_client, path):
    """Any program may have written it."""
    redis_client.hdel("cron_job:report", "queue", "queue_name", "message")

    assert "(no name)" not in visitor().get(path).text


def test_a_disabled_one_has_no_next_tick(visitor, report):
    """As in `cron list`: a time would promise a run that never comes. Its own page still says when it would fire."""
    viewer = visitor("viewer")
    report.disable("too loud")

    assert "\N{EN DASH} \N{EN DASH} disabled: too loud" in viewer.get("/cron").shown
    page = viewer.get("/cron/job?name=report")
    assert "It is disabled and will not fire." in page.shown
    assert page.text.count("+01:00)") + page.text.count("+02:00)") == 10


def test_run_now_is_explained_to_those_who_may_press_it(visitor, report):
    """Not to viewers, and not where there is nothing to run."""
    told = "“Run now” ignores the policies"

    assert told in visitor().get("/cron").shown
    assert told not in visitor("viewer").get("/cron").shown
    report.remove()
    assert told not in visitor().get("/cron").shown


def test_it_is_run_disabled_enabled_and_removed(visitor, report, redis_client):
    """Each is noted; a viewer does none of it."""
    operator = visitor()
    where = {"name": "report", "namespace": "default"}

    assert "report was pushed as" in operator.post("/cron/act", {**where, "action": "run"}).shown
    assert json.loads(redis_client.lindex("queue:default", 0))["class"] == "Report"
    assert (
        "disabled: too loud" in operator.post("/cron/act", {**where, "action": "disable", "reason": "too loud"}).shown
    )
    assert not CronJobs().find("report").is_enabled
    operator.post("/cron/act", {**where, "action": "enable"})
    assert CronJobs().find("report").is_enabled
    assert visitor("viewer").post("/cron/act", {**where, "action": "remove"}).status == 403
    assert "report was removed." in operator.post("/cron/act", {**where, "action": "remove", "sure": "yes"}).shown
    assert CronJobs().find("report") is None
    assert [entry.action for entry in AuditLog().page()] == ["remove", "enable", "disable", "run"]


def test_all_are_disabled_and_enabled(visitor, report):
    """As in the gem's Web tab; it asks before, also without JavaScript, and is noted."""
    operator = visitor()
    CronJobs().add("@daily", "Report", name="other").disable("broken")

    asked = operator.post("/cron/act", {"all": "1", "action": "disable", "reason": "deploy"})
    assert "Disable all periodic jobs?" in asked.shown
    assert CronJobs().find("report").is_enabled
    done = operator.post("/cron/act", {"all": "1", "action": "disable", "reason": "deploy", "sure": "yes"})
    assert "1 periodic job is disabled." in done.shown
    assert ("disabled: deploy" in done.shown, "disabled: broken" in done.shown) == (True, True)
    done = operator.post("/cron/act", {"all": "1", "action": "enable", "sure": "yes"})
    assert "2 periodic jobs are enabled." in done.shown
    assert [entry.action for entry in AuditLog().page()] == ["enable all", "disable all"]


@pytest.mark.parametrize(
    "fields", [{"action": "disable"}, {"all": "1", "action": "remove"}, {"all": "0", "action": "enable"}]
)
def test_nothing_is_done_to_all_by_mistake(visitor, report, fields):
    """A form in which the name got lost must not stop all of them."""
    assert "nothing was done" in visitor().post("/cron/act", {**fields, "sure": "yes"}).shown

    assert CronJobs().find("report").is_enabled


def test_a_viewer_has_no_button_for_all(visitor, report):
    """And is refused."""
    assert "Disable all" not in visitor("viewer").get("/cron").text
    assert visitor("viewer").post("/cron/act", {"all": "1", "action": "disable", "sure": "yes"}).status == 403


@pytest.mark.parametrize("page", ["/cron?from=0", "/cron/job?name=report"])
def test_disabling_one_leads_back_to_the_page_with_the_button(visitor, report, page):
    """There the operator sees the new state."""
    fields = {"name": "report", "action": "disable", "reason": "too loud"}

    reply = visitor().post("/cron/act", fields, referer=f"http://localhost:4567{page}")

    assert "report is disabled." in reply.shown
    assert ("All periodic jobs" in reply.shown) is page.startswith("/cron/job")


def test_removing_one_asks_before(visitor, report):
    """Also without JavaScript, because a job that no program declares would be lost."""
    operator = visitor()
    where = {"name": "report", "namespace": "default", "action": "remove"}

    asked = operator.post("/cron/act", where)

    assert asked.status == 200
    assert "Remove report?" in asked.shown
    assert CronJobs().find("report") is not None
    assert AuditLog().page() == []
    assert dict(re.findall(r'type="hidden" name="(?!form_token)(\w+)" value="([^"]*)"', asked.text)) == {
        **where,
        "sure": "yes",
    }
    assert 'value="remove" class="danger" data-ask="Remove report?' in operator.get("/cron/job?name=report").text


def test_one_that_has_gone_is_told(visitor):
    """Somebody removed it."""
    assert visitor().get("/cron/job?name=gone").status == 404
    assert "nothing was done" in visitor().post("/cron/act", {"name": "gone", "action": "run"}).shown


def test_what_others_wrote_into_the_timetable_stays_text(visitor, redis_client):
    """Ruby's hashes, damaged ones included."""
    for name in (SCRIPT, "broken"):
        redis_client.sadd("cron_jobs:default", f"cron_job:default:{name}")
        redis_client.hset(
            f"cron_job:default:{name}",
            mapping={
                **dict.fromkeys(("klass", "description", "message", "args", "status", "last_enqueue_time"), SCRIPT),
                "name": name,
                "cron": SCRIPT if name == "broken" else "* * * * *",
                "namespace": "default",
            },
        )

    operator = visitor(redaction=Redaction.none())
    for path in ("/cron", "/cron/job?name=broken", f"/cron/job?name={SCRIPT.replace(' ', '+')}"):
        page = operator.get(path)
        assert page.status in (200, 404)
        assert "<script>alert" not in page.text


def test_a_page_shows_a_hundred_jobs_and_as_many_of_other_schedulers(visitor, redis_client):
    """The page is read and sent every second while someone has it open."""
    for number in range(150):
        redis_client.sadd("cron_jobs", f"cron_job:j{number:03}")
        redis_client.hset(
            f"cron_job:j{number:03}", mapping={"name": f"j{number:03}", "klass": "X", "cron": "* * * * *"}
        )
    operator = visitor()

    first, second, third = (operator.get(f"/cron{query}") for query in ("", "?from=100", "?from=200"))

    assert re.findall(r"name=(j\d+)", first.text) == [f"j{number:03}" for number in range(100)]
    assert 'href="/cron?from=100" rel="next"' in first.text
    assert re.findall(r"name=(j\d+)", second.text) == [f"j{number:03}" for number in range(100, 150)]
    assert 'rel="next"' not in second.text
    assert "There are no periodic jobs" not in third.shown


def test_a_periodic_job_is_found_by_a_part_of_its_name(visitor, redis_client):
    """Among more than a page shows. Buttons for all jobs would not mean the found ones, so there are none."""
    for number in range(102):
        CronJobs().add("0 3 * * *", "Report", name=f"Report {number}")

    assert 'name="name" value="" maxlength' in visitor().get("/cron").text
    found = visitor().get("/cron?name=report+7")
    assert found.text.count('<tr data-key="default Report 7') == 11
    assert "Disable all" not in found.shown
    assert "no periodic job with such a name" in visitor().get("/cron?name=bill").shown


def test_an_empty_timetable_says_how_to_fill_it(visitor):
    """In either language."""
    assert "sidekiq.periodic" in visitor().get("/cron").shown
    assert sidekiq.periodic


@pytest.mark.parametrize(("rights", "status"), [("", 200), ("-time", 403)])
def test_a_redis_user_who_may_only_read_sees_them(rights, status, report, redis_url, redis_client):
    """The user of docs/dashboard.md; one without a right is told which, and the doctor's other findings are shown."""
    page = (REPOSITORY / "docs" / "dashboard.md").read_text()
    [rules] = re.findall(r"^redis-cli ACL SETUSER viewer (.*)$", page, re.MULTILINE)
    redis_client.execute_command("ACL", "SETUSER", "viewer", "reset", *shlex.split(f"{rules} {rights}"))
    url = redis_url.replace("redis://", "redis://viewer:a-password@")
    visitor = Visitor(asgi_app(authorize=lambda _request: "viewer", pool=url))

    assert visitor.get("/cron").status == 200
    assert visitor.get("/cron/job?name=report").status == status
    assert eventually(lambda: "doctor is checking" not in visitor.get("/").shown)
    assert "could not check this Redis: " not in visitor.get("/").shown


def test_a_name_that_is_not_utf_8_stands_beside_the_others(visitor, report, redis_client):
    """The page is shown."""
    redis_client.sadd("cron_jobs", b"cron_job:caf\xe9")
    redis_client.hset(b"cron_job:caf\xe9", mapping={"name": b"caf\xe9", "klass": "X", "cron": "* * * * *"})

    page = visitor().get("/cron")

    assert page.status == 200
    assert r"caf\xe9 * * * * * X" in page.shown
    assert "report */5 * * * *" in page.shown
