"""``flyball state``: each field with the event that set it."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from commands import invoke
from hashes import sha
from recorded_run import KEY, OLD, recording, write_journal

from flyball.app.config import GAMES
from flyball.app.events import AdaptiveParamsChanged, MatchmakingUpdated, Payload
from flyball.app.events.payload import OpponentPick
from flyball.app.status.state import FIELDS, Field, informative

EVENTS = recording().events


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run folder whose journal holds the recording."""
    write_journal(tmp_path / "journal.sqlite", EVENTS)
    return tmp_path


def state(run: Path, *words: str) -> Result:
    return invoke("state", *words, run=run)


def last(name: str) -> str:
    """Return the id of the last event of a name."""
    return [event.id for event in EVENTS if event.data.event_name == name][-1]


def test_state_names_the_events_that_set_fields_and_lineage(run: Path) -> None:
    done = state(run, KEY, "--json")
    assert done.exit_code == 0, done.stderr
    fields = json.loads(done.stdout)
    assert tuple(fields) == FIELDS
    origins = {name: field["event"] and field["event"]["id"] for name, field in fields.items()}
    assert fields["games_played"]["value"] == 600
    assert origins["games_played"] == last("SELFPLAY_COMPLETE")
    assert origins["last_training_time"] == last("TRAINING_COMPLETED")
    assert origins["last_promotion_success"] == last("PROMOTION_REJECTED")
    assert fields["consecutive_failures"] == {"value": 1, "event": fields["last_promotion_success"]["event"]}
    assert fields["quality_score"] == {"value": None, "event": None}
    assert len(fields["elo_history"]["value"]) == 2
    assert len(fields["elo_pools"]["value"]) == 1, "two ratings within a minute are one pool"
    assert fields["champions"]["value"] == [{"model": OLD, "step": 0, "elo": 5.0, "elo_stderr": 20.0, "root": None}]
    assert fields["champions"]["event"] == fields["current_model"]["event"]
    assert fields["champions"]["event"]["id"] == last("MODEL_PROMOTED")
    for name, event in (("training", "TRAINING_COMPLETED"), ("candidate", "PROMOTION_REJECTED")):
        assert (fields[name]["value"], fields[name]["event"]["id"]) == (None, last(event))
    assert fields["distributed"] == {"value": None, "event": None}
    table = state(run, KEY, "--all").stdout
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in table.splitlines() if line}
    assert (lines["learning_rate"], lines["training_block"]) == ("as configured", "none")
    assert lines["quality_score"] == "unknown"
    done = state(run, KEY, "elo_current")
    assert done.exit_code == 0, done.stderr
    assert "EVALUATION_COMPLETED" in done.stdout
    assert f" trace {last('EVALUATION_COMPLETED')[:8]}" in done.stdout
    assert "No event has set it yet" in state(run, KEY, "quality_score").stdout
    assert state(run, KEY, "elo").exit_code == 4
    unknown = state(run, "no_such_2p", "elo")
    assert unknown.exit_code == 4
    assert "no_such_2p" in unknown.stderr


def shown(done: Result) -> set[str]:
    """Return the fields of a shown table."""
    return {line.split()[0] for line in done.stdout.splitlines()[1:]}


def test_state_hides_unknown_and_default_fields(run: Path) -> None:
    brief = state(run, KEY)
    hidden = set(FIELDS) - shown(brief)
    assert f"Hidden: {len(hidden)} of {len(FIELDS)} fields" in brief.stderr
    assert brief.stderr.rstrip().endswith(f"state {KEY} --all")
    assert {"quality_score", "learning_rate", "training_block", "candidate", "selfplay_rate"} <= hidden
    assert {"games_played", "elo_current", "current_model", "consecutive_failures"} <= shown(brief)
    assert shown(state(run, KEY, "--all")) == set(FIELDS)
    assert "Hidden" not in state(run, KEY, "--all").stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["state", "tic_tac_to_2p"], f"Did you mean {KEY}?"),
        (["state", "tic_tac_toe"], f"Did you mean {KEY}?"),
        (["state", "hearts_4"], "The run plays breakthrough6_2p, connect_four_2p"),  # it has no hearts_4p
        (["league", "tic_tac_to_2p"], f"Did you mean {KEY}?"),
        (["tail", "--config-key", "tic_tac_to_2p"], f"Did you mean {KEY}?"),
        (["state", KEY, "elo_curent"], "Did you mean elo_current?"),
    ],
)
def test_wrong_names_get_the_nearest_of_the_run(run: Path, words: list[str], hint: str) -> None:
    refused = invoke(*words, run=run)
    assert refused.exit_code == 4
    assert hint in " ".join(refused.stderr.split())


def test_fields_with_a_note_are_never_hidden(run: Path) -> None:
    noted = Field(None, None, fixed="fixed: the backend does not understand it")
    assert informative(KEY, {"epochs": noted, "learning_rate": Field(None, None)}) == {"epochs": noted}


def write_run(folder: Path, *also: Payload) -> Path:
    """Return a run folder with the recording and further events."""
    run = recording()
    for data in also:
        run.add(data, subject=KEY)
    write_journal(folder / "journal.sqlite", run.events)
    return folder


def test_long_matchmaking_is_shortened_in_the_table(tmp_path: Path) -> None:
    shares = [0.3] + [0.05] * 14
    picks = [
        OpponentPick(agent=sha(f"model-{n}"), category="peers", probability=share) for n, share in enumerate(shares)
    ]
    run = write_run(tmp_path, MatchmakingUpdated(model=OLD, picks=tuple(reversed(picks))))
    table = state(run, KEY).stdout
    (line,) = [line for line in table.splitlines() if line.startswith("matchmaking")]
    assert f"{sha('model-0')[:8]} 30%, " in line
    assert "13 more" in line
    assert max(map(len, table.splitlines())) <= 120
    whole = state(run, KEY, "matchmaking").stdout
    assert all(pick.agent[:8] in whole for pick in picks)


def test_parameter_left_as_configured_has_no_setter(tmp_path: Path) -> None:
    """Change one parameter by ADAPTIVE_PARAMS_CHANGED, which names all of them."""
    epochs, games = GAMES[KEY].epochs, GAMES[KEY].selfplay.games_per_request

    def params(epochs: int) -> AdaptiveParamsChanged:
        return AdaptiveParamsChanged(learning_rate=5e-4, epochs=epochs, games_per_iteration=games, reason="rating")

    fields = json.loads(state(write_run(tmp_path, params(epochs)), KEY, "--json").stdout)
    assert fields["epochs"] == {"value": epochs, "event": None}
    assert fields["learning_rate"]["event"]["name"] == "ADAPTIVE_PARAMS_CHANGED"
    (tmp_path / "more").mkdir()
    fields = json.loads(state(write_run(tmp_path / "more", params(epochs), params(epochs + 1)), KEY, "--json").stdout)
    assert fields["epochs"]["event"]["name"] == "ADAPTIVE_PARAMS_CHANGED"
    assert fields["games_per_iteration"]["event"] is None
