"""The `sidekiq-celery` command, also available as `python -m sidekiq_celery`."""

import sys

from sidekiq_py.errors import SidekiqError

__all__ = ("main",)


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from sidekiq_celery.bin.celery import main as command_line
    except SidekiqError as error:
        sys.exit(f"Error: {error}")

    sys.exit(command_line())


if __name__ == "__main__":
    main()
