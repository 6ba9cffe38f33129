"""What all daemons' files share: ``python -m daemons.NAME [--run DIR]`` is ``flyball daemon run NAME``."""

import sys
from typing import NoReturn


def main(name: str) -> NoReturn:
    """Run a daemon with the command line's options; exits with its code."""
    from app.cli import main as flyball

    sys.argv = ["flyball", "daemon", "run", name, *sys.argv[1:]]
    flyball()
    sys.exit(0)
