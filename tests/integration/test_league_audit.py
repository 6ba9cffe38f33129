"""``flyball league CONFIG --audit GAMES`` on members that lie in a store."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from commands import refused, succeeded
from recorded_run import Recording, evidence, write_journal

from app.cli.group import main
from app.config import GAMES, RunSettings
from app.core import Elo, ModelHash
from app.events import CheckpointAdded, ModelPromoted, RunConfigured
from app.games import open_table
from app.learning.network import init_policy, parameters_to_bytes
from app.store import FileStore, Manifest, put_checkpoint

KEY = "tic_tac_toe_2p"
MEMBERS = 4


def stored(folder: Path, seed: int) -> ModelHash:
    config = GAMES[KEY]
    spec = open_table(config, 0).spec
    sizes = {"network": config.network, "obs_size": spec.observation_size, "actions": spec.actions}
    tensors = init_policy(config.network, spec.shape, seed=seed)
    manifest = Manifest(config_key=config.key, step=0, parent=None, optimizer=None, **sizes)
    return put_checkpoint(FileStore(folder / "store"), manifest, parameters_to_bytes(tensors), None)


@pytest.fixture
def members(tmp_path: Path) -> list[ModelHash]:
    """Return four models that play about equally well. The last is published as 900 Elo stronger than the others."""
    models = [stored(tmp_path, seed) for seed in range(MEMBERS)]
    run = Recording([])
    root = run.add(RunConfigured(run_id="1", settings=RunSettings().model_dump(mode="json")))
    run.add(ModelPromoted(model=models[0], previous=None, step=0, elo=Elo(5.0), evidence=evidence(5.0)), root, KEY)
    for step, model in enumerate(models):
        elo = Elo(900.0 if step == MEMBERS - 1 else 0.0)
        entry = {"model": model, "parent": None, "step": step, "elo": elo, "elo_stderr": 9.0, "games": 100}
        run.add(CheckpointAdded(**entry, roles=("recent",)), root, KEY)
    write_journal(tmp_path / "journal.sqlite", run.events)
    return models


def league(run: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["--run", str(run), "league", *words], prog_name="flyball")


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
