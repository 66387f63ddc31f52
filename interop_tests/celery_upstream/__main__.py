"""
Run Celery's own tests under the alias.

    python -m interop_tests.celery_upstream [unit | integration] [--quick] [--table FILE] [PYTEST OPTION …]
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from interop_tests.celery_upstream import expectations
from interop_tests.celery_upstream.expectations import Drift, drift
from interop_tests.celery_upstream.running import run
from interop_tests.celery_upstream.source import fetched
from interop_tests.celery_upstream.table import written


def main(arguments: Sequence[str]) -> int:
    """Run the parts that *arguments* name. Returns 0 if all results are as expected."""
    parser = argparse.ArgumentParser(prog="python -m interop_tests.celery_upstream", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *expectations.PARTS], metavar="part", help="unit, integration")
    parser.add_argument("--quick", action="store_true", help="leave out the files that take the longest")
    parser.add_argument("--table", type=Path, help="write the counts there; only of a whole run")
    options, for_pytest = parser.parse_known_args(arguments)
    source = fetched()
    found, drifts = {}, []
    for name in options.parts or expectations.PARTS:
        part = expectations.part(name)
        left_out = [f"--deselect=t/{test}" for test in part.deselected(options.quick)]
        found[name] = run(source, name, part.wanted(options.quick), *left_out, *for_pytest)
        if doubtful := drift(name, options.quick, found[name]).surprising:
            # Celery's own CI retries a test in these suites up to five times: some depend on the machine's speed.
            print(f"\n{len(doubtful)} tests are asked once more", flush=True)
            found[name] |= run(source, name, [test.removeprefix("t/") for test in doubtful], *for_pytest)
        differs = drift(name, options.quick, found[name])
        # pytest options may select tests, so tests that were not run are not reported then.
        drifts.append(_printed(name, replace(differs, gone=()) if for_pytest else differs, found[name]))
    if options.table and not (options.quick or options.parts or for_pytest or any(drifts)):
        options.table.write_text(written(source.folder, found))
    return 1 if any(drifts) else 0


def _printed(name: str, differs: Drift, outcomes: dict[str, str]) -> Drift:
    counts = {kind: sum(one == kind for one in outcomes.values()) for kind in ("passed", "failed", "skipped")}
    print(f"\nCelery's {name} tests: " + ", ".join(f"{number} {kind}" for kind, number in counts.items()))
    for tests, what in (
        (differs.failing, "fail, and expected_{}.toml does not list them"),
        (differs.holding, "pass, though expected_{}.toml lists them"),
        (differs.gone, "were not run, though expected_{}.toml lists them"),
    ):
        if tests:
            print(f"{len(tests)} {what.format(name)}:\n  " + "\n  ".join(tests))
    return differs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
