"""The scripts that include the commands of extensions."""

from sidekiq_py.redis_access.job_path.verbs import Verb, Verbs


def test_a_script_is_not_kept_if_a_verb_was_added_while_it_was_made() -> None:
    """A thread may push while another one loads extensions; each later push of the process would lack the verb."""
    verbs = Verbs()

    class AddedMeanwhile(str):
        def strip(self, chars: str | None = None, /) -> str:
            verbs.add([Verb("ONE_LATER", "{}")])
            return super().strip(chars)

    verbs.add([Verb("ONE_FIRST", AddedMeanwhile("{}"))])
    verbs.script()

    assert b"ONE_LATER" in verbs.script().text
