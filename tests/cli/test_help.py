"""The lists of commands that `--help` prints."""

import pytest
from click.testing import CliRunner

from sidekiq_py.cli import main


@pytest.mark.parametrize("group", ["", "queues", "processes", "retries", "scheduled", "dead", "batches", "cron"])
def test_each_command_is_listed_with_a_whole_sentence(group: str) -> None:
    """click cuts a long first sentence off and appends three dots."""
    shown = CliRunner().invoke(main, [*group.split(), "--help"], prog_name="sidekiq-py")

    listed = shown.output.partition("Commands:")[2].splitlines()[1:]
    assert listed
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []
