"""Participants that are killed -9 many times: nothing is lost, and nothing counts twice."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from participants import BRISK, participant, promoted, twice
from running_loop import EXAMPLES, flyball, running_loop

from flyball.app.events import NodeLost, SelfplayComplete

KILLS = int(os.environ.get("PARTICIPANT_KILLS", "40"))
PACE = (6, 1.0, 10.0, 1500.0)
"""Participants at a time, seconds that each lives, and seconds after which no other starts."""


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_participants_killed_again_and_again_count_once(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "own_loop.py", tmp_path)
    alone = (sys.executable, "own_loop.py", ".")
    settings = (
        (EXAMPLES / "own_loop.toml").read_text(encoding="utf-8").replace("= 200", "= 20").replace("= 4000", "= 400")
    )
    settings = "tick_seconds = 1.0\n" + settings + BRISK
    with running_loop(tmp_path, settings) as loop:
        words = [str(word) for word in (EXAMPLES.parent / "support" / "killing.py", "own_loop.py", KILLS, *PACE)]
        with participant(tmp_path, *alone):
            loop.wait_for("a promotion", lambda: promoted(loop))
        with (tmp_path / "participants.err").open("wb") as errors:
            streams = {"stdout": subprocess.PIPE, "stderr": errors}
            done = subprocess.run([sys.executable, *words], cwd=tmp_path, check=True, **streams)
        during, after = len(loop.events(SelfplayComplete)), loop.head()
        with participant(tmp_path, *alone):
            loop.wait_for("two promotions after the kills", lambda: len(promoted(loop, after)) >= 2)
        print(f"{int(done.stdout)} kills, {during} shards and {len(promoted(loop))} promotions")  # noqa: T201
        assert during, "participants lived too shortly to do anything"
        assert loop.events(NodeLost)
        assert not twice(loop)
        assert loop.leave() == 0
    assert "different                            0" in flyball(tmp_path, "replay", "--check")
