"""The `sidekiq-celery` command, also available as `python -m sidekiq_celery`."""

import sys

__all__ = ("main",)


def main() -> None:
    """Run the command line and exit with its code."""
    from sidekiq_celery.bin.celery import main as command_line

    sys.exit(command_line())


if __name__ == "__main__":
    main()
