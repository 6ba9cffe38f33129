"""The command ``flyball``, also as ``python -m flyball``."""

from flyball.app.cli.group import run as main

if __name__ == "__main__":
    main()
