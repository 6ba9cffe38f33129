"""``python -m flyball.app.cli`` is ``flyball``."""

from flyball.app.cli.group import run

if __name__ == "__main__":
    run()
