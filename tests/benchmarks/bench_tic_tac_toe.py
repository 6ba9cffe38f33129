"""Measure how often a tic-tac-toe model loses to a perfect player.

Run with ``python tests/benchmarks/bench_tic_tac_toe.py MODEL [--run FOLDER]``. MODEL is what ``flyball eval --model``
takes; with the folder of a run of ``flyball up``, ``current`` is its champion. The temperature is that of the
configuration's evaluations.
"""

import argparse
import json
from pathlib import Path

from flyball.app.api.players import fetch_player
from flyball.app.api.runs import RunLocation, silent
from flyball.app.config import GAMES, RunFolder
from flyball.app.core import ConfigKey
from flyball.app.games import open_table
from flyball.app.play.judges import SolverPlayer
from flyball.app.play.match_statistics import match_statistics
from flyball.app.play.matches import MatchPlan, play_match
from flyball.app.play.players import load_player
from flyball.app.store import MemoryStore

CONFIG = GAMES[ConfigKey("tic_tac_toe_2p")]


def main() -> None:
    """Play the games and print how they ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--run", type=Path, default=Path(), help="folder of the run that the model is of")
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    store = MemoryStore()
    name = fetch_player(asked.model, "MODEL", RunLocation(RunFolder(asked.run), None), CONFIG, store, say=silent)
    model = load_player(store, name, open_table(CONFIG, 0).spec)
    plan = MatchPlan(asked.games, asked.seed, CONFIG.evaluation.temperature)
    match = match_statistics(play_match(CONFIG, model, SolverPlayer(CONFIG), plan), CONFIG.players)
    ended = {"wins": match.wins, "draws": match.draws, "losses": match.losses}
    print(json.dumps({"model": name, **ended, "loss_share": match.losses / plan.games}))  # noqa: T201


if __name__ == "__main__":
    main()
