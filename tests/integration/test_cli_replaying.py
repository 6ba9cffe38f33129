"""``flyball replay --check`` and ``--what-if`` on journals of runs."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from commands import invoke, refused, succeeded
from generated_run import write_generated
from golden_runs import load
from msgspec.structs import replace
from recorded_run import Recording, write_journal
from replayed import replay

from flyball.app.config import RunSettings
from flyball.app.events import Event, ModelPromoted, Payload, PlateauDetected, RunConfigured
from flyball.app.journal import SqliteStateStore
from flyball.daemons.saved_state import SCHEMAS_KEY

Flyball = Callable[..., Result]
EVENTS = 6_000


@pytest.fixture(scope="module")
def events() -> list[Event[Payload]]:
    """Return a run in which every kind of decision is taken."""
    return load("generated")


@pytest.fixture(scope="module")
def run(events: list[Event[Payload]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_generated(folder / "journal.sqlite", events)
    return folder


BENT = 0.5
"""Elo by which a recorded promotion is bent; no later rule decides by so little."""


@pytest.fixture(scope="module")
def bent(events: list[Event[Payload]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run whose journal has another promotion than was decided."""
    folder = tmp_path_factory.mktemp("bent")
    promotion = promoted(events)
    data = promotion.data.replace(elo=promotion.data.elo + BENT)
    other = replace(promotion, envelope=replace(promotion.envelope, data=data))
    write_generated(folder / "journal.sqlite", [other if event is promotion else event for event in events])
    return folder


def promoted(events: list[Event[Payload]]) -> Event[Any]:
    return [event for event in events if isinstance(event.data, ModelPromoted)][8]


def flyball(folder: Path, *words: object) -> Result:
    return invoke("replay", *words, run=folder)


def told(result: Result) -> Any:
    assert result.exit_code in (0, 1), result.stderr
    return json.loads(result.stdout)


def test_a_journal_is_checked(run, events):
    result = succeeded(flyball(run, "--check"))
    lines = dict(line.rsplit(maxsplit=1) for line in result.stdout.splitlines() if not line.startswith("folded"))
    report = replay(events)
    assert lines["state hash"] == report.state_hash
    assert {name: int(lines[name].replace(",", "")) for name in report.matched} == report.matched
    assert lines["different"] == "0"
    assert "The journal replays" in result.stderr


def test_the_check_as_json(run, events):
    found = told(flyball(run, "--check", "--json"))
    report = replay(events)
    assert found["matched"] == report.matched
    assert (found["position"], found["events"], found["differing"]) == (EVENTS, EVENTS, 0)
    assert (found["state_hash"], found["first_difference"]) == (report.state_hash, None)
    assert found["events_per_second"] > 0


def test_a_part_of_a_journal_is_checked(run, events):
    found = told(flyball(run, "--check", "--json", "--to", 1000))
    report = replay(events[:1000])
    assert (found["position"], found["state_hash"]) == (1000, report.state_hash)
    assert found["matched"] == report.matched
    later = told(flyball(run, "--check", "--json", "--to", 1000, "--from", 500))
    assert later["state_hash"] == report.state_hash
    assert 0 < sum(later["matched"].values()) < sum(report.matched.values())


def test_the_first_difference_is_told_with_its_story(bent, events):
    promotion = promoted(events)
    result = flyball(bent, "--check")
    assert result.exit_code == 1
    assert f"recorded at {promotion.sequence}, says data.elo {promotion.data.elo + BENT}" in result.stderr
    assert "hint:" in result.stderr
    story = result.stdout.partition("The first difference:")[2]
    assert f"data.elo: recorded {promotion.data.elo + BENT}, recomputed {promotion.data.elo}" in story
    assert "EVALUATION_COMPLETED" in story


def test_the_story_as_json(bent, events):
    promotion = promoted(events)
    result = flyball(bent, "--check", "--json")
    assert result.exit_code == 1
    story = told(result)["first_difference"]
    assert (story["kind"], story["by"]) == ("changed", "ModelLifecycleCoordinator")
    assert story["recorded"]["id"] == story["recomputed"]["id"] == promotion.id
    assert [field["path"] for field in story["fields"]] == ["data.elo"]
    assert story["causes"][-1]["id"] == promotion.envelope.causationid
    before = flyball(bent, "--check", "--to", promotion.sequence - 1)
    after = flyball(bent, "--check", "--from", promotion.sequence)
    assert (before.exit_code, after.exit_code) == (0, 0)


def test_a_check_goes_on_from_its_checkpoint(run, bent, events, tmp_path):
    saved = tmp_path / "replay.sqlite"
    first = told(flyball(run, "--check", "--json", "--to", 1200, "--checkpoint", saved))
    rest = told(flyball(run, "--check", "--json", "--checkpoint", saved))
    assert (first["events"], rest["events"]) == (1200, EVENTS - 1200)
    report = replay(events)
    assert (rest["state_hash"], rest["matched"]) == (report.state_hash, report.matched)
    assert told(flyball(run, "--check", "--json", "--checkpoint", saved))["events"] == 0

    refused(flyball(run, "--check", "--checkpoint", saved, "--to", 100), 1, "checkpoint is at position")
    other = tmp_path / "other"
    write_generated(other / "journal.sqlite", [replace(events[0], envelope=renamed(events[0])), *events[1:]])
    refused(flyball(other, "--check", "--checkpoint", saved), 1, "not of another-run")


def test_a_checkpoint_of_another_version_is_refused(run, tmp_path):
    saved = tmp_path / "replay.sqlite"
    told(flyball(run, "--check", "--json", "--to", 300, "--checkpoint", saved))
    store = SqliteStateStore(saved)
    store.save(store.load()[0], {SCHEMAS_KEY: b'{"FeedbackState": "another"}'})
    store.close()
    refused(flyball(run, "--check", "--checkpoint", saved), 1, "of another version of flyball")


def test_a_longer_runs_checkpoint_is_called_another_runs(run, events, tmp_path):
    saved, other = tmp_path / "replay.sqlite", tmp_path / "other"
    told(flyball(run, "--check", "--json", "--checkpoint", saved))
    write_generated(other / "journal.sqlite", [replace(events[0], envelope=renamed(events[0])), *events[1:50]])
    refused(flyball(other, "--check", "--checkpoint", saved), 1, "not of another-run")


def test_what_is_no_checkpoint_need_not_be_restored(run, tmp_path):
    junk = tmp_path / "cp.bin"
    junk.write_bytes(bytes(range(256)) * 16)
    refused = flyball(run, "--check", "--checkpoint", junk)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "cp.bin is damaged, or no checkpoint." in refused.stderr
    assert "remove it: it only saves time" in refused.stderr


def renamed(event: Event[Payload]) -> Any:
    return replace(event.envelope, id="another-run")


def test_what_if_shows_decisions_by_configuration_and_in_time(run, events):
    found = told(flyball(run, "--what-if", "--set", "feedback.stall.velocity=-1e6", "--json"))
    stalls = [event for event in events if isinstance(event.data, PlateauDetected)]
    assert stalls
    lost = [one for one in found["differences"] if "upper_bound" in (one["before"] or ())]
    assert len(lost) == len(stalls)  # missing, or replaced by a boost that answers a pause
    assert {one["kind"] for one in lost} <= {"missing", "replaced"}
    places = [(one["config_key"] or "", one["position"]) for one in found["differences"]]
    assert places == sorted(places)
    assert not any(one["name"] == "SELFPLAY_REQUESTED" for one in found["differences"])
    assert sum(one["count"] for one in found["counts"] if one["name"] == "SELFPLAY_REQUESTED") > 0


def test_what_if_in_lines(run):
    result = succeeded(flyball(run, "--what-if", "--set", "feedback.stall.boost=2.0", "EXPLORATION_*"))
    assert " ~ " in result.stdout
    assert "temperature x 1.5" in result.stdout
    assert " → temperature x 2" in result.stdout
    first, *_ = result.stdout.splitlines()
    assert first.startswith("Open loop: ")
    summary = result.stdout.partition("\n\n")[0]
    boost = re.search(r": first at (\d+), .* by \w+; .*\d+ EXPLORATION_BOOST changed", summary)
    assert boost is not None
    assert int(boost[1]) > 0
    assert "Nothing differs." in flyball(run, "--what-if", "--set", "seed=0").stderr


MORE_GAMES = ("--what-if", "--set", "feedback.lifecycle.elo0=900", "--set", "feedback.lifecycle.elo1=1000")
"""Other bounds of the gate: some verdicts become requests for more games."""

FEWER_GAMES = ("--what-if", "--set", "feedback.lifecycle.elo0=0", "--set", "feedback.lifecycle.elo1=2000")
"""Bounds so far apart that fewer games suffice: some requests become verdicts."""


def test_what_if_begins_with_the_kinds_of_change(run):
    lines = flyball(run, *MORE_GAMES).stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:5]] == [
        ["-", "missing"],
        ["+", "added"],
        [">", "replaced"],
        ["~", "changed"],
    ]
    assert re.search(r"[1-9]\d* MODEL_PROMOTED → EVALUATION_REQUESTED", lines[3])
    assert lines[1].index("MODEL_PROMOTED") < lines[1].index("SELFPLAY_REQUESTED")


@pytest.mark.parametrize(
    ("asked", "name"),
    [(MORE_GAMES, "MODEL_PROMOTED → EVALUATION_REQUESTED"), (FEWER_GAMES, "EVALUATION_REQUESTED → PROMOTION_REJECTED")],
)
def test_what_if_lists_verdicts_beside_requests(run, asked, name):
    found = told(flyball(run, *asked, "--json"))
    replaced = [one for one in found["differences"] if one["kind"] == "replaced"]
    assert found["summary"]["replaced"][name] == sum(one["name"] == name for one in replaced) > 0


def test_what_if_lists_sampled_opponents_on_demand(run):
    """Count sampled opponents, and list them on request."""
    found = told(flyball(run, *MORE_GAMES, "--json"))
    sampled = found["summary"]["missing"]["OPPONENT_SAMPLED"]
    assert sampled > 0
    assert not any("OPPONENT_SAMPLED" in one["name"] for one in found["differences"])
    asked = told(flyball(run, *MORE_GAMES, "--json", "OPPONENT_SAMPLED"))
    assert sum(one["kind"] == "missing" for one in asked["differences"]) == sampled


def test_what_if_shows_a_field_where_two_lines_would_be_the_same(run):
    lines = flyball(run, "--what-if", "--set", "seed=1", "OPPONENT_SAMPLED").stdout.splitlines()
    sides = [line.split("  ", 5)[-1].split(" → ") for line in lines if line.startswith("  ~ ")]
    assert sides
    assert all(len(one) == 2 and not one[0].endswith(one[1]) for one in sides)
    assert any(": data." in one[0] for one in sides)


def test_what_if_of_one_configuration_and_a_span(run):
    words = ("--what-if", "--set", "feedback.stall.velocity=-1000", "--json")
    every = told(flyball(run, *words))["differences"]
    key = next(one["config_key"] for one in every if one["config_key"])
    assert told(flyball(run, *words, "--config-key", key))["differences"] == [
        one for one in every if one["config_key"] == key
    ]
    middle = sorted(one["position"] for one in every)[len(every) // 2]
    assert told(flyball(run, *words, "--from", middle))["differences"] == [
        one for one in every if one["position"] >= middle
    ]
    assert told(flyball(run, *words, "--to", middle))["differences"] == [
        one for one in every if one["position"] <= middle
    ]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--check", "--yes"], 2, "--yes cannot be used with --check"),
        (["--check", "MODEL_PROMOTED"], 2, "cannot be used with --check"),
        (["--what-if", "--checkpoint", "x", "--set", "seed=1"], 2, "--checkpoint cannot be used with --what-if"),
        (["--check", "--what-if"], 2, "--what-if cannot be used with --check"),
        ([], 2, "--check, --what-if, or by PATTERN which events to publish again"),
        (["--yes", "--reason", "all of it"], 2, "--check, --what-if, or by PATTERN which events to publish again"),
        (["--set", "seed=1"], 2, "--set cannot be used with publishing again"),
        (["--check", "--checkpoint", "x", "--from", "3"], 2, "--from cannot be used with --checkpoint"),
        (["--check", "--from", "1000000"], 2, "begin at or before it with --from"),
        (["--what-if", "--set", "seed=1", "--from", "100", "--to", "50"], 2, "--from 100 lies after --to 50"),
        (["--what-if"], 2, "--set KEY=VALUE"),
        (["--what-if", "--set", "feedback.stal.velocity=1"], 2, "feedback.stall.velocity"),
        (["--what-if", "--set", "feedback.stall.boost=0"], 2, "greater than 1"),
        (["--what-if", "--set", "seed=1", "--config-key", "hex_2p"], 4, "hex7_2p"),
    ],
)
def test_what_does_not_fit_is_refused(run, words, code, said):
    refused(flyball(run, *words), code, said)


def test_failed_check_exits_with_1_though_its_pipe_is_closed(bent):
    command = [sys.executable, "-m", "flyball.app.cli", "--run", str(bent), "replay", "--check"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.close()
    assert process.returncode == 1


@pytest.mark.parametrize(
    "words",
    [("replay", "--check"), ("replay", "--what-if", "--set", "seed=1"), ("status",), ("league",), ("up", "--for", "1")],
)
def test_run_of_a_version_with_other_settings_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    run = Recording([])
    settings = RunSettings().model_dump(mode="json")
    run.add(RunConfigured(run_id="1", settings={**settings, "feedback": {**settings["feedback"], "gone": {"x": 1}}}))
    write_journal(tmp_path / "journal.sqlite", run.events)
    refused(
        invoke(*words, run=tmp_path),
        2,
        "Another version of flyball recorded this run: feedback.gone",
    )
