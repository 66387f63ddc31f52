"""The program `sidekiq-py`, also as `python -m sidekiq_py`."""

from sidekiq_py.cli import main as command_line


def main() -> None:
    """Run the command line and exit with its code."""
    command_line(prog_name="sidekiq-py")


if __name__ == "__main__":
    main()
