"""The program `sidekiq-py`, also as `python -m sidekiq_py`."""


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        # Imported here, so that Ctrl-C during the import ends without a traceback as well.
        from sidekiq_py.cli import main as command_line
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    command_line(prog_name="sidekiq-py")


if __name__ == "__main__":
    main()
