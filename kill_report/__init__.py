"""
Proves what docs/delivery.md promises: campaigns of faults under load, and the page that reports their results.

    python -m kill_report [--campaign NAME] [--minutes 15] [--scale 1.0]

A campaign is a kind of fault, and consists of rounds. A round starts its own Redis and workers, pushes jobs, injects
faults, lets the remaining jobs run, and then settles the accounts (`books`): what was lost, what ran twice, and why.
Each round is stored as a line in a file (`record`), so that a run continues where the last one stopped. `page` sums
them up in docs/reliability.md.

It builds on `tests.support` and `interop_tests.support`, which have the ledger, the servers, the proxy and the workers.
"""
