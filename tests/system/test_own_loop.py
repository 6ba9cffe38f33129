"""A loop that nobody wrote for Flyball is governed by it: tests/examples/own_loop.py, in processes of its own."""

import json
import re
import shutil
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import own_loop
import pytest
from participants import BRISK, participant, promoted
from running_loop import EXAMPLES, FLYBALL, flyball, running_loop

from flyball.app.events import (
    EvaluationCompleted,
    EvaluationFailed,
    ModelCached,
    NodeLost,
    ParityChecked,
    QualityScoreUpdated,
    SelfplayComplete,
    SelfplayFailed,
    TrainingCompleted,
    TrainingFailed,
    TrainingProgress,
)

SUPPORT = EXAMPLES.parent / "support"
RESULTS = (SelfplayComplete, SelfplayFailed, TrainingCompleted, TrainingFailed, EvaluationCompleted, EvaluationFailed)
SETTINGS = "tick_seconds = 1.0\n" + (EXAMPLES / "own_loop.toml").read_text(encoding="utf-8")
JUDGEMENT = {"score": 0.75, "checked": 3, "components": {"distinct": 1.0}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in (EXAMPLES / "own_loop.py", SUPPORT / "own_loop_command.py"):
        shutil.copy(file, tmp_path)
    return tmp_path


@pytest.mark.timeout(600)
def test_own_loop_is_promoted_and_survives_kill_9(folder: Path) -> None:
    words = (sys.executable, "own_loop.py", ".")
    with running_loop(folder, SETTINGS + BRISK) as loop:
        for _ in range(2):
            with participant(folder, *words) as process:
                before = len(promoted(loop))
                loop.wait_for("a promotion", lambda wanted=before + 2: len(promoted(loop)) >= wanted)
                process.kill()
                process.wait()
        lost = loop.head()
        with participant(folder, *words) as process:
            loop.wait_for("promotions after the kills", lambda: len(promoted(loop, lost)) >= 2)
            daemons = {line["daemon"] for line in json.loads(flyball(folder, "status", "--json"))["daemons"]}
            assert {"training", "evaluation", "selfplay_worker", "feedback"} <= daemons
            process.terminate()
            assert process.wait(timeout=60) == 0
        shards = loop.events(QualityScoreUpdated)
        for kind in RESULTS:
            counts = Counter(event.data.request_id for event in loop.events(kind))
            assert max(counts.values(), default=1) == 1, kind
        assert max(Counter(event.data.shard.key for event in shards).values()) == 1
        assert not loop.events(SelfplayFailed, TrainingFailed, EvaluationFailed)
        ratings = [event.data.elo for event in loop.events(EvaluationCompleted) if event.data.purpose == "rating"]
        assert ratings[-1] > ratings[0] + 200
        assert loop.leave() == 0
    assert "different                            0" in flyball(folder, "replay", "--check")


@pytest.mark.timeout(600)
def test_command_trains_and_distributes_beside_another(folder: Path) -> None:
    kinds = ("training", "distribution")
    command = (FLYBALL, "participate", "--run", ".", *kinds, "--", "python", "own_loop_command.py")
    others = (sys.executable, "own_loop.py", ".", "selfplay", "evaluation")
    with (
        running_loop(folder, SETTINGS + BRISK) as loop,
        participant(folder, *others),
        participant(folder, *command) as process,
    ):
        loop.wait_for("two promotions", lambda: len(promoted(loop)) >= 2)
        assert loop.events(TrainingProgress)
        loop.wait_for("a distribution", lambda: loop.events(ModelCached))
        assert {event.source for event in loop.events(TrainingCompleted)} <= {"training@laptop.1", "training@laptop.2"}
        process.kill()
        process.wait()
        loop.wait_for("the loss", lambda: loop.events(NodeLost))
        after = loop.head()
        with participant(folder, *command):
            loop.wait_for("a promotion after the kill", lambda: promoted(loop, after))
        counts = Counter(event.data.request_id for event in loop.events(TrainingCompleted))
        assert max(counts.values()) == 1


def call(address: str, token: str, path: str, body: dict[str, Any]) -> Any:
    """Post JSON as any language can; return the answer, None for an empty one."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read() or "null")


@pytest.mark.timeout(600)
def test_program_trains_and_inspects_over_http(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_loop, "FILES", folder / "own_loop_files")
    words = (FLYBALL, "participate", "--run", ".", "training", "inspection", "--http", "0")
    others = (sys.executable, "own_loop.py", ".", "selfplay", "evaluation")
    with running_loop(folder, "external_inspection = true\n" + SETTINGS + BRISK) as loop, participant(folder, *others):
        with (folder / "port.out").open("wb") as said, participant(folder, *words, stderr=said):
            line = loop.wait_for("the port", lambda: re.search(r"http://\S+:\d+", (folder / "port.out").read_text()))
            address, token = line[0], (folder / "participants" / "token").read_text().strip()
            while len(promoted(loop)) < 2:
                if request := call(address, token, "/requests", {"worker": "w", "wait_seconds": 5}):
                    inspects = request["kind"] == "inspection"
                    answer = JUDGEMENT if inspects else own_loop.train(HttpRequest(request))
                    call(address, token, f"/attempts/{request['attempt']}/answer", answer)
        assert not loop.events(TrainingFailed)
        assert {event.data.score for event in loop.events(QualityScoreUpdated)} == {JUDGEMENT["score"]}
        assert loop.events(ParityChecked)
        assert "quality_monitor@laptop" not in {event.source for event in loop.events(QualityScoreUpdated)}


class HttpRequest(dict):
    def progress(self, epoch: int, epochs: int, **metrics: float) -> None:
        """Report nothing."""
