"""``python -m tidelog`` is the console script."""

import sys


def main() -> None:
    """The console script; Ctrl-C ends it at any moment, also while it is imported."""
    try:
        from cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
