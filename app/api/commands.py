"""Commands in hints, for a person to paste."""

import os
import re
import shlex
from pathlib import Path

COMMAND = re.compile(r"(?<!of )\bflyball (?=[a-z])")
"""A command in a text. After "of" it names an origin instead, as in "a folder of flyball train"."""


def flyball(run: Path, config_file: Path | None) -> str:
    """Return ``flyball`` with options for a run folder and settings file.

    The options are left out where this shell's environment, or the default, means the same.
    """
    words = ["flyball"]
    if str(run) != (os.environ.get("FLYBALL_RUN") or "run"):
        words += ["--run", str(run)]
    if config_file is not None and str(config_file) != os.environ.get("FLYBALL_CONFIG_FILE"):
        words += ["--config-file", str(config_file)]
    return shlex.join(words)


def flyball_anywhere(run: Path, config_file: Path | None) -> str:
    """Return ``flyball`` with options that are valid in any folder."""
    words = ["flyball", "--run", str(run.absolute())]
    if config_file is not None:
        words += ["--config-file", str(config_file.absolute())]
    return shlex.join(words)


def completed(text: str, start: str) -> str:
    """Return a text whose commands begin with ``start``, from ``flyball`` or ``flyball_anywhere``."""
    return COMMAND.sub(lambda _: f"{start} ", text)
