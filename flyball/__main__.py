"""The command ``flyball``, also as ``python -m flyball``."""

import sys

from flyball import check_packages


def main() -> None:
    """Run the command, unless another package hides its code."""
    try:
        check_packages()
    except ImportError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    from flyball.app.cli.group import run

    run()


if __name__ == "__main__":
    main()
