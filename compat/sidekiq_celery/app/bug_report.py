"""Details for a bug report."""

import platform

from sidekiq_celery._state import app_or_default
from sidekiq_celery._version import VERSION_BANNER
from sidekiq_celery.contract import App
from sidekiq_celery.utils.functional import maybe_list
from sidekiq_celery.utils.imports import qualname

_REPORT = """
software -> sidekiq-py:{own} celery API:{celery} kombu:{kombu} py:{python}
            redis:{redis}
platform -> system:{system} arch:{arch}
            kernel version:{kernel} imp:{implementation}
loader   -> {loader}
settings -> transport:{transport} results:{results}

{settings}
"""


def appstr(app: App) -> str:
    """Describe an app, for `repr`."""
    return f"{app.main or '__main__'} at {id(app):#x}"


def bugreport(app: App | None = None) -> str:
    """List versions, the machine, and the settings of *app* (or the current app), without secrets."""
    from importlib.metadata import PackageNotFoundError, version

    from sidekiq_celery._config.censoring import sanitize_url

    def release(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "unknown"

    of = app_or_default(app)
    return _REPORT.format(
        own=release("sidekiq-py"),
        celery=VERSION_BANNER,
        kombu=release("kombu"),
        python=platform.python_version(),
        redis=release("redis"),
        system=platform.system(),
        arch=", ".join(filter(None, platform.architecture())),
        kernel=platform.release(),
        implementation=platform.python_implementation(),
        loader=qualname(type(of.loader)),
        # kombu accepts a list of servers, too. A mistyped URL, such as redis:/user:password@host, has no ://.
        transport=sanitize_url(next(iter(maybe_list(of.conf.broker_url) or ()), "redis")).partition("://")[0],
        results=sanitize_url(of.conf.result_backend or "disabled"),
        settings=of.conf.humanize(),
    )
