"""A job that is due each second; notes the id of each run in the file TICKS."""

import os

import sidekiq_py as sidekiq

_ticks = os.open(os.environ["TICKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


@sidekiq.periodic("* * * * * *", name="each second", catch_up=120)
@sidekiq.job(name="Tick", queue="ticks")
def tick() -> None:
    """Notes that it ran."""
    os.write(_ticks, f"{sidekiq.current_job().jid}\n".encode())
