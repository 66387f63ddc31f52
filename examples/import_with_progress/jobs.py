"""
The jobs of the import, in Python: each handles one row of a customer list.

A row with bad input fails with a message and is not retried. Any other exception is a bug in the code or a problem
outside of it, and the job is retried.
"""

import os
from pathlib import Path

import sidekiq_py as sidekiq

COUNTRIES = Path(os.environ.get("COUNTRIES", Path(__file__).parent / "countries.txt"))


@sidekiq.job(name="ImportRow", queue="imports", retry=5)
def import_row(number: int, name: str, email: str, country: str) -> None:
    """Store a customer."""
    if "@" not in email:
        raise sidekiq.JobFailed(f"row {number} has no e-mail")
    if country not in COUNTRIES.read_text().split():
        raise sidekiq.JobFailed(f"row {number}: we do not deliver to {country}")
    if name == "Robert'); DROP TABLE":
        raise RuntimeError(f"row {number} broke the code")
