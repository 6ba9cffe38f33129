"""Trainings by custom trainers: job specs, and self-play to feed them."""

from pathlib import Path
from typing import Any

from selfplay_rig import ignore, selfplay_spec

from flyball.app.config import GAMES, GameConfig, NetworkSettings
from flyball.app.core import ConfigKey, derive_seed
from flyball.app.engine import JsonObject
from flyball.app.games import open_table
from flyball.app.learning.jobs import initialise
from flyball.app.play.matches import MatchPlan, play_match
from flyball.app.play.players import load_player
from flyball.app.play.selfplay import play
from flyball.app.store import FileStore
from flyball.daemons.training import train_job

EXAMPLES = Path(__file__).parents[1] / "examples"
TIC_TAC_TOE = GAMES[ConfigKey("tic_tac_toe_2p")].replace(network=NetworkSettings(hidden=(64, 64)))

# Parts of training scripts; GOOD is the one without a mistake.
BASE = "import json, sys, numpy as np\nfrom pathlib import Path\n"
OPEN = """
folder = Path(sys.argv[1])
request = json.loads((folder / "request.json").read_text())
paths = request["paths"]
model = dict(np.load(paths["base_npz"]))
"""
RESULT = """
Path(paths["result"]).write_text(json.dumps({"metrics": {"policy_loss": 0.25}}))
"""
MODEL = """
np.savez(paths["model_npz"], **model)
"""
GOOD = OPEN + MODEL + RESULT


def first_model(root: Path, config: GameConfig) -> str:
    """Store a configuration's first model."""
    return initialise({"store": str(root), "config": config.model_dump(mode="json"), "seed": 7}, ignore)["model"]


def train_spec(root: Path, config: GameConfig, model: str, step: int = 0, games: int = 512, **changes: Any) -> Any:
    """Return the spec of a training on fresh games of a model."""
    shard = play(selfplay_spec(root, model, config, games=games, seed=derive_seed(1, "games", step)), ignore)["shard"]
    return {
        "store": str(root),
        "config": config.model_dump(mode="json"),
        "base_model": model,
        "shards": [shard],
        "seed": derive_seed(1, "training", step),
        "step": step,
        "learning_rate": config.learning_rate,
        "epochs": config.epochs,
        "settings_folder": str(EXAMPLES),
        **changes,
    }


def train_often(root: Path, config: GameConfig, trainings: int) -> tuple[str, str]:
    """Train a new model several times; return the first and last model.

    The trainings are those of the daemon's jobs.
    """
    module, _, name = train_job(config).partition(":")
    job = getattr(__import__(module, fromlist=[name]), name)
    first = model = first_model(root, config)
    for step in range(trainings):
        result: JsonObject = job(train_spec(root, config, model, step), ignore)
        model = result["model"]
    return first, model


def score_against_random(root: Path, config: GameConfig, model: str, games: int = 400) -> float:
    """Return a model's mean score against the random player. A draw counts half."""
    game, store = open_table(config, 0).spec, FileStore(root)
    hero, opponent = (load_player(store, name, game) for name in (model, "random"))
    plan = MatchPlan(games, seed=3, temperature=config.evaluation.temperature)
    scores = play_match(config, hero, opponent, plan).scores
    return sum(scores) / len(scores)


def commanded(root: Path, script: str, **changes) -> dict:
    """Return the spec of a training by a script. The script lies in the settings' folder."""
    (root.parent / "mine.py").write_text(BASE + script)
    config = TIC_TAC_TOE.replace(train_command=("python", "mine.py"))
    model = first_model(root, config)
    return train_spec(root, config, model, games=8, settings_folder=str(root.parent), **changes)


def stored(root: Path) -> set[str]:
    return set(FileStore(root).keys())


def folders(root: Path) -> list[Path]:
    return list((root / "trainings").iterdir())
