"""
The proof of what docs/delivery.md promises: campaigns of faults under load, and the page that says what came of them.

    python -m kill_report [--campaign NAME] [--minutes 15] [--scale 1.0]

A campaign is a kind of fault; it is made of rounds. A round starts a Redis and workers of its own, pushes jobs, does
harm, lets the rest run and closes the books (`books`): what was lost, what ran twice and why. Each round is kept as a
line in a file (`record`), so that a run goes on where the last one stopped. `page` adds them up to docs/reliability.md.

Stands on `tests.support` and `interop_tests.support`, which have the ledger, the servers, the proxy and the workers.
"""
