"""A job that is due every second; it notes the id of each run in the file TICKS."""

import os

import sidekiq_py as sidekiq

_ticks = os.open(os.environ["TICKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


@sidekiq.periodic("* * * * * *", name="each second", catch_up=120)
@sidekiq.job(name="Tick", queue="ticks")
def tick() -> None:
    """Note that the job ran."""
    os.write(_ticks, f"{sidekiq.current_job().jid}\n".encode())
