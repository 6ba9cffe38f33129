"""``python -m app.cli`` is ``flyball``."""

from app.cli.group import run

if __name__ == "__main__":
    run()
