"""The example of a player of one's own in a running loop: an opponent in self-play, and rated in the league."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from own_training import EXAMPLES
from running_loop import BRISK, FLYBALL, running_loop

from app.events import EloUpdated, EvaluationCompleted, EvaluationFailed, SelfplayComplete, SelfplayFailed


@pytest.mark.timeout(500)
def test_example_player_is_rated_in_the_league(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(EXAMPLES / "greedy_player.py", folder)
    example = (EXAMPLES / "greedy_player.toml").read_text()
    game = "[games.tic_tac_toe_2p]\n"
    settings = BRISK.replace(game, f'{game}builtins = ["random", "greedy"]\n')
    settings += example[example.index("[games.tic_tac_toe_2p.bots") :]
    with running_loop(folder, settings, cwd=tmp_path) as loop:

        def met() -> list:
            return [event for event in loop.events(SelfplayComplete) if "greedy" in event.data.opponents]

        def rated() -> list:
            return [one for event in loop.events(EloUpdated) for one in event.data.ratings if one.agent == "greedy"]

        rating = loop.wait_for("a rating", rated)[-1]
        loop.wait_for("games against it", met)
        results = [event.data.results for event in loop.events(EvaluationCompleted) if event.data.purpose == "rating"]
        assert all({"random", "greedy"} <= {match.opponent for match in played} for played in results)
        assert rating.elo > 100, "it beats the random bot"
        assert not loop.events(EvaluationFailed, SelfplayFailed)
        words = [FLYBALL, "--run", str(folder), "league", "tic_tac_toe_2p", "--json"]
        shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        members = {member["agent"]: member for member in json.loads(shown)["tic_tac_toe_2p"]["members"]}
        assert members["greedy"]["kind"] == "baseline"
        assert members["greedy"]["elo"] is not None
