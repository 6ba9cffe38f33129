"""``flyball league CONFIG --audit GAMES`` on members that lie in a store."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from commands import invoke, refused, succeeded
from recorded_run import write_league

from flyball.app.config import GAMES, GameConfig, RunSettings
from flyball.app.core import ModelHash
from flyball.app.games import open_table
from flyball.app.learning.jobs import first_model
from flyball.app.store import FileStore, put_checkpoint

KEY = "tic_tac_toe_2p"
MEMBERS = 4


def stored(folder: Path, seed: int) -> ModelHash:
    manifest, parameters = first_model(GAMES[KEY], open_table(GAMES[KEY], 0).spec, seed)
    return put_checkpoint(FileStore(folder / "store"), manifest, parameters, None)


@pytest.fixture
def members(tmp_path: Path) -> list[ModelHash]:
    """Return four models that play about equally well. The last is published as 900 Elo stronger than the others."""
    models = [stored(tmp_path, seed) for seed in range(MEMBERS)]
    ratings = [*[0.0] * (MEMBERS - 1), 900.0]
    write_league(tmp_path / "journal.sqlite", [*zip(models, ratings, strict=True)], current=models[0])
    return models


def league(run: Path, *words: str) -> Result:
    return invoke("league", *words, run=run)


def test_an_audit_finds_the_wrong_rating_and_journals_nothing(tmp_path: Path, members: list[ModelHash]) -> None:
    before = (tmp_path / "journal.sqlite").read_bytes()
    done = succeeded(league(tmp_path, KEY, "--audit", "60", "--json"))
    found = json.loads(done.stdout)[KEY]
    assert (found["games"], len(found["members"])) == (60, MEMBERS)
    worst = found["members"][0]
    assert (worst["agent"], worst["step"], worst["covered"]) == (members[-1], MEMBERS - 1, False)
    assert worst["error"] > 300
    assert found["rms"] > 200
    assert "fewer than 12 say little" in done.stderr
    assert (tmp_path / "journal.sqlite").read_bytes() == before
    again = league(tmp_path, KEY, "--audit", "60", "--json", "--workers", "2")
    assert again.stdout == done.stdout, "its games depend on the run's seed alone"
    shown = league(tmp_path, KEY, "--audit", "20").stdout
    assert all(text in shown for text in ("off by", members[-1][:8], "beyond 95%"))


def test_an_audit_leaves_out_models_not_on_disk(tmp_path: Path, members: list[ModelHash]) -> None:
    for model in members[:2]:
        FileStore(tmp_path / "store").delete(model)
    done = succeeded(league(tmp_path, KEY, "--audit", "20", "--json"))
    assert {one["agent"] for one in json.loads(done.stdout)[KEY]["members"]} == {*members[2:]}


def test_an_audit_of_a_single_member_is_refused(tmp_path: Path, members: list[ModelHash]) -> None:
    for model in members[1:]:
        FileStore(tmp_path / "store").delete(model)
    refused(league(tmp_path, KEY, "--audit", "20"), 4, "1 rated members of the league are on disk")


def test_audit_of_an_external_run_is_refused(tmp_path: Path) -> None:
    config = GameConfig(key="mine_2p", backend="external", game="mine", players=2)
    journal = tmp_path / "journal.sqlite"
    write_league(journal, [("a" * 64, 10.0)], key="mine_2p", settings=RunSettings(configs=(config,)))
    refused(league(tmp_path, "mine_2p", "--audit", "20"), 2, "your programs' own", "play a round robin")
