"""``python -m app.cli`` is ``flyball``."""

from app.cli.group import main

if __name__ == "__main__":
    main(prog_name="flyball")
