"""The program's help, its commands, and completion."""

import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from sidekiq_py.cli import COMMANDS, main
from sidekiq_py.errors import ConfigError, ReplyLostError
from tests.support.redis_server import LOADS_SLOWLY


def test_help_lists_every_command_and_imports_none():
    """Help must be quick, so it loads no command's module."""
    check = (
        "import sys; from click.testing import CliRunner; from sidekiq_py.cli import main\n"
        "shown = CliRunner().invoke(main, ['--help']).output\n"
        "print(shown, [m for m in sys.modules if m.startswith('sidekiq_py.cli.') and m != 'sidekiq_py.cli.version'])"
    )

    shown = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout

    assert shown.rstrip().endswith("[]")
    assert all(f"  {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize("words", [["quues"], ["--", "quues"], ["--", "--queues"]])
def test_an_unknown_command_gets_a_usage_error(words):
    """A mistyped command is reported and exits with 2, as shells expect. `--` before it, too."""
    result = CliRunner().invoke(main, words)

    assert result.exit_code == 2
    assert f"No such command {words[-1]!r}. Did you mean 'queues'?" in result.output


def test_a_command_like_no_other_gets_no_suggestion():
    """A wrong one would mislead."""
    result = CliRunner().invoke(main, ["xyz"])

    assert result.exit_code == 2
    assert "No such command 'xyz'." in result.output
    assert "Did you mean" not in result.output


def test_an_error_of_ours_is_one_sentence_and_no_traceback(monkeypatch):
    """An error from Redis is reported in one sentence, with exit code 1."""
    monkeypatch.setattr("sidekiq_py.cli.completion.get_completion_class", _raise(ReplyLostError("the line is dead")))

    result = CliRunner().invoke(main, ["completion", "bash"])

    assert (result.exit_code, result.output) == (1, "Error: the line is dead\n")


def test_a_redis_that_loads_its_data_needs_time(new_redis_server):
    """It has started already."""
    server = new_redis_server(config=LOADS_SLOWLY)
    with server.loading():
        result = CliRunner().invoke(main, ["stats", "--redis-url", server.url])

    assert (result.exit_code, result.output) == (
        1,
        "Error: LOADING Redis is loading the dataset in memory\n"
        "Redis is still reading its data from disk. Try again when it has.\n",
    )


def test_a_setting_that_is_unusable_is_a_usage_error(monkeypatch):
    """An invalid setting shows the command's usage."""
    monkeypatch.setattr("sidekiq_py.cli.completion.get_completion_class", _raise(ConfigError("no such version")))

    result = CliRunner().invoke(main, ["completion", "bash"])

    assert result.exit_code == 2
    assert "no such version" in result.output


def test_the_completion_script_is_for_this_program():
    """The output of `completion` names the variable that the shell uses for completion."""
    result = CliRunner().invoke(main, ["completion", "zsh"], prog_name="sidekiq-py")

    assert result.exit_code == 0
    assert "_SIDEKIQ_PY_COMPLETE=zsh_complete" in result.output


def test_commands_are_completed_without_importing_them():
    """The shell gets names and help lines from the table."""
    context = main.make_context("sidekiq-py", [], resilient_parsing=True)

    items = main.shell_complete(context, "st")

    assert [(item.value, item.help) for item in items] == [("stats", "Show counters and sizes.")]


@pytest.mark.parametrize("group", ["queues", "processes", "retries", "scheduled", "dead", "cron", "batches"])
def test_the_commands_of_a_group_are_completed(group):
    """Also those of a group that lists its jobs if no command is given."""
    offered = ShellComplete(main, {}, "sidekiq-py", "_SIDEKIQ_PY_COMPLETE").get_completions([group], "l")

    assert [item.value for item in offered] == ["list"]


@pytest.mark.parametrize("group", ["queues", "processes", "retries", "scheduled", "dead", "cron", "batches"])
def test_what_may_follow_the_options_of_a_group_is_completed(group):
    """Its commands, and more options of its list, but nothing after an option that needs a value."""
    complete = ShellComplete(main, {}, "sidekiq-py", "_SIDEKIQ_PY_COMPLETE").get_completions

    assert [item.value for item in complete([group, "--json"], "l")] == ["list"]
    assert [item.value for item in complete([group], "--j")] == ["--json"]
    assert [item.value for item in complete([group, "--json"], "--he")] == ["--help"]
    assert complete([group, "-u"], "l") == []


def _raise(error):
    def fail(*_arguments):
        raise error

    return fail


def test_a_workers_flags_without_its_command_are_told_where_they_belong():
    """Ruby's `sidekiq` takes flags without a command."""
    result = CliRunner().invoke(main, ["-r", "./my jobs.py", "-c", "5"])

    assert result.exit_code == 2
    assert "No such option" in result.output
    assert "-r" in result.output
    assert ". To run a worker: sidekiq-py worker -r './my jobs.py' -c 5" in result.output


def test_a_flag_before_its_command_is_told_where_it_belongs():
    """kubectl and redis-cli take such flags first."""
    result = CliRunner().invoke(main, ["-u", "redis://nowhere", "dead", "list", "-n", "5"])

    assert result.exit_code == 2
    assert "Options come after the command: sidekiq-py dead list -n 5 -u redis://nowhere" in result.output
    assert "To run a worker" not in result.output


@pytest.mark.parametrize("app", [["-A", "shop"], ["-Ashop"], ["--app", "shop"], ["--app=shop"]], ids="".join)
@pytest.mark.parametrize("is_first", [True, False])
def test_the_flag_that_names_a_celery_app_leads_to_the_program_that_takes_it(app, is_first):
    """Who moves from Celery finds two programs, and types Celery's flags after either, in any of their spellings."""
    worker = ["worker", "-l", "INFO"]
    result = CliRunner().invoke(main, [*app, *worker] if is_first else [*worker, *app])

    assert result.exit_code == 2
    assert "-A names a Celery app, and `sidekiq-celery` runs those: sidekiq-celery -A myapp worker" in result.output


def test_a_module_or_queue_with_the_name_of_a_command_is_not_taken_for_it():
    """Many programs keep their jobs in `jobs.py`."""
    result = CliRunner().invoke(main, ["-r", "jobs", "-q", "batches"])

    assert result.exit_code == 2
    assert ". To run a worker: sidekiq-py worker -r jobs -q batches" in result.output


def test_a_second_queue_after_one_flag_gets_its_own():
    """RQ's worker takes all queues after one another."""
    result = CliRunner().invoke(main, ["worker", "-r", "myapp.jobs", "-q", "high", "low"])

    assert result.exit_code == 2
    assert "each queue its own -q, and each module its own -r: -q low" in result.output.replace("\n", " ")


def test_a_module_that_is_named_without_a_flag_gets_the_flag():
    """Celery and RQ users would pass a module this way."""
    result = CliRunner().invoke(main, ["worker", "myapp.jobs"])

    assert result.exit_code == 2
    assert "with -r: sidekiq-py worker -r myapp.jobs" in result.output.replace("\n", " ")
    assert (
        "Usage: sidekiq-py worker [OPTIONS]\n"
        in CliRunner().invoke(main, ["worker", "-h"], prog_name="sidekiq-py").output
    )
