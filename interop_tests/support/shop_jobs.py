"""The jobs of a shop, for the screenshots in docs/images. Running jobs keep running until the shop closes."""

import os
import time

import redis

import sidekiq_py as sidekiq

CLOSED = "shop:closed"
POLL_SECONDS = 0.05


class MissingSalesError(Exception):
    """The error of a forecast without sales figures."""


def _until_closing_time() -> None:
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    while not client.exists(CLOSED):
        time.sleep(POLL_SECONDS)
    client.close()


@sidekiq.job(name="FraudCheck", queue="python")
def fraud_check(_order: str, _amount: float) -> None:
    """Run until the shop closes."""
    _until_closing_time()


@sidekiq.job(name="Catalogue::ResizeImage", queue="images")
def resize_image(_path: str, _pixels: int) -> None:
    """Run until the shop closes, too."""
    _until_closing_time()


@sidekiq.job(name="CountStock", queue="python")
def count_stock(_article: int) -> None:
    """Finish immediately."""


@sidekiq.job(name="ForecastDemand", queue="python", backtrace=True)
def forecast_demand(region: str, _weeks: int) -> None:
    """Fail for every region."""
    raise MissingSalesError(f"no sales of last year for region {region!r}")
