"""Commands, invoked in this process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from flyball.app.cli.group import main

Flyball = Callable[..., Result]
"""Invokes a command on a test's run folder."""


def invoke(*words: object, run: Path | None = None, **how: Any) -> Result:
    """Invoke a command, on a run folder if one is given."""
    folder = () if run is None else ("--run", str(run))
    return CliRunner().invoke(main, [*folder, *map(str, words)], prog_name="flyball", **how)


def told(result: Result) -> Any:
    """Return the JSON that a successful command wrote."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def succeeded(result: Result, *said: str) -> Result:
    """Check that a command exited with 0 and wrote these texts to stderr; return its result."""
    assert result.exit_code == 0, result.output
    for text in said:
        assert text in result.stderr
    return result


def refused(result: Result, code: int, *why: str) -> None:
    """Check that a command exited with a code, and wrote nothing but an error with these texts."""
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    for text in why:
        assert text in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
