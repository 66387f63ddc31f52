"""The jobs of a shop, for the pictures in docs/images: those that are at work stay so until the shop closes."""

import os
import time

import redis

import sidekiq_py as sidekiq

CLOSED = "shop:closed"
POLL_SECONDS = 0.05


class MissingSalesError(Exception):
    """What a forecast without figures raises."""


def _until_closing_time() -> None:
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    while not client.exists(CLOSED):
        time.sleep(POLL_SECONDS)
    client.close()


@sidekiq.job(name="FraudCheck", queue="python")
def fraud_check(_order: str, _amount: float) -> None:
    """Takes its time."""
    _until_closing_time()


@sidekiq.job(name="Catalogue::ResizeImage", queue="images")
def resize_image(_path: str, _pixels: int) -> None:
    """Takes its time too."""
    _until_closing_time()


@sidekiq.job(name="CountStock", queue="python")
def count_stock(_article: int) -> None:
    """Done at once."""


@sidekiq.job(name="ForecastDemand", queue="python", backtrace=True)
def forecast_demand(region: str, _weeks: int) -> None:
    """Fails for every region."""
    raise MissingSalesError(f"no sales of last year for region {region!r}")
