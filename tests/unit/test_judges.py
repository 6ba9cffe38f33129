"""Judges: their play, shares of optimal moves, no use in training."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from flyball.app.config import CPU, GAMES, GameConfig, PipelineSettings
from flyball.app.core import ConfigKey
from flyball.app.engine import JsonObject
from flyball.app.games import FINISHED, UnknownGame, open_table
from flyball.app.games.tic_tac_toe_solver import TicTacToeSolver
from flyball.app.job_specs import LineupSpec
from flyball.app.play import optimal
from flyball.app.play.judges import NoJudge, SolverPlayer, load_judge, load_player_or_judge
from flyball.app.play.match_statistics import MatchStatistics, match_statistics
from flyball.app.play.matches import MatchPlan, batch, play_match
from flyball.app.play.optimal import TooFewPositions, draw_positions, optimal_share, saved_positions
from flyball.app.play.own_players import DecidingPlayer
from flyball.app.play.players import JudgeInTraining, RandomPlayer, load_player
from flyball.app.store import MemoryStore
from flyball.app.train.game import UnfitSettings, run_game

TIC_TAC_TOE, CONNECT_FOUR = GAMES[ConfigKey("tic_tac_toe_2p")], GAMES[ConfigKey("connect_four_2p")]
JUDGES = ("solver", "mcts:10")


def match_of(config: GameConfig, hero, opponent, games: int = 40) -> MatchStatistics:
    return match_statistics(play_match(config, hero, opponent, MatchPlan(games, 1, 0.0, 2)), 2)


def test_solver_never_loses_and_is_optimal() -> None:
    solver = load_judge("solver", TIC_TAC_TOE)
    openings = match_statistics(play_match(TIC_TAC_TOE, solver, RandomPlayer(), MatchPlan(200, 1, 0.0)), 2)
    assert openings.losses == 0
    assert openings.wins > 150
    assert match_statistics(play_match(TIC_TAC_TOE, solver, solver, MatchPlan(40, 1, 0.0)), 2).draws == 40
    positions = draw_positions(TIC_TAC_TOE, 300, seed=0)
    assert optimal_share(TIC_TAC_TOE, SolverPlayer(TIC_TAC_TOE), positions, 0.0, 0).all.mean == 1
    expected = np.mean([len(position.optimal) / (9 - len(position.history)) for position in positions])
    share = optimal_share(TIC_TAC_TOE, RandomPlayer(), positions, 0.0, 0).all
    assert share.lower < expected < share.upper


@pytest.mark.parametrize("key", ["connect_four_2p", "hex7_2p", "breakthrough6_2p", "othello_2p", "minishogi_2p"])
def test_mcts_plays_legal_moves_and_beats_random(key: str) -> None:
    """Seats of Hex and Breakthrough number their actions differently. Othello has forced passes."""
    config = GAMES[ConfigKey(key)]
    assert match_of(config, load_judge("mcts:20", config), RandomPlayer(), games=10).wins >= 8


def test_more_playouts_win_and_seeds_repeat() -> None:
    few, many = (load_judge(f"mcts:{playouts}", CONNECT_FOUR) for playouts in (5, 200))
    assert match_of(CONNECT_FOUR, many, few).score.mean > 0.8
    first, again = (match_of(CONNECT_FOUR, load_judge("mcts:10", CONNECT_FOUR), RandomPlayer()) for _ in "12")
    assert first == again


@pytest.mark.parametrize("name", ["mcts", "mcts:", "mcts:0", "mcts:-5", "mcts:ten", "mcts:1e3", "solver:2"])
def test_misspelt_judges_are_refused(name: str) -> None:
    with pytest.raises(NoJudge, match="There is no judge"):
        load_judge(name, TIC_TAC_TOE)


@pytest.mark.parametrize("key", ["hearts_4p", "oh_hell_3p", "maedn_4p", "chinese_checkers_3p"])
def test_mcts_does_not_play_other_games(key: str) -> None:
    with pytest.raises(UnknownGame, match="does not play"):
        load_judge("mcts:10", GAMES[ConfigKey(key)])


@pytest.mark.parametrize("name", JUDGES)
class TestNoTrainingMeetsJudges:
    def test_settings_players_and_lineups_refuse_them(self, name: str) -> None:
        with pytest.raises(ValidationError, match=f"{name} is a judge, and judges are not trained against"):
            TIC_TAC_TOE.replace(builtins=("random", name))
        with pytest.raises(ValidationError, match=r"cannot be called|should match pattern"):
            TIC_TAC_TOE.replace(bots={name: {"player": "package:factory"}})
        with pytest.raises(JudgeInTraining):
            load_player(MemoryStore(), name, open_table(TIC_TAC_TOE, 0).spec, config=TIC_TAC_TOE)
        with pytest.raises(ValidationError, match=f"{name} is a judge"):
            LineupSpec(opponents=("random", name), games=2)

    @pytest.mark.parametrize(
        "settings",
        [
            {"training": {"eval_opponent": "NAME"}},
            {"collection": {"opponents": {"self": 0.5, "NAME": 0.5}}},
            {"collection": {"initial_policy": "behavioral_clone"}, "cloning": {"teacher": "NAME"}},
        ],
    )
    def test_training_runs_refuse_them(self, name: str, settings: dict[str, dict[str, object]]) -> None:
        written = PipelineSettings.model_validate_json(
            PipelineSettings.model_validate(settings).model_dump_json().replace("NAME", name)
        )
        with pytest.raises(UnfitSettings, match=f"has no bot '{name}'"):
            run_game(TIC_TAC_TOE, written)

    def test_gauntlets_of_daemons_refuse_them(self, name: str, tmp_path: Path) -> None:
        spec: JsonObject = {
            "store": str(tmp_path),
            "config": TIC_TAC_TOE.model_dump(mode="json"),
            "model": "random",
            "seed": 0,
            "batch": {"opponent": {"name": name, "kind": name, "games": 2}, "first": 0, "games": 2},
        }
        with pytest.raises(JudgeInTraining):
            batch(spec, lambda _: None)
        assert batch(spec | {"judges": True}, lambda _: None)["games"]


class Listed(DecidingPlayer):
    """Plays the first legal action; records histories it was asked about."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def decide(self, turn, points):
        self.asked += [turn.table.history(slot) for slot in turn.slots.tolist()]
        assert (turn.table.seats()[turn.slots] != FINISHED).all()
        return turn.mask.argmax(axis=1).astype(np.int32)


def test_test_positions_are_distinct_differ_in_value_and_repeat() -> None:
    positions, again = (draw_positions(TIC_TAC_TOE, 200, seed=3) for _ in "12")
    assert positions == again
    assert positions != draw_positions(TIC_TAC_TOE, 200, seed=4)
    solver = TicTacToeSolver()
    for position in positions:
        values = solver.values(position.history)
        assert position.optimal == {action for action, value in values.items() if value == max(values.values())}
        assert len(set(values.values())) > 1
        assert position.hard == solver.quiet(position.history)
    boards = {(frozenset(p.history[::2]), frozenset(p.history[1::2])) for p in positions}
    assert len(boards) == 200
    lengths = [len(position.history) for position in positions]
    assert {lengths.count(length) for length in range(2, 8)} <= set(range(25, 35))


def test_random_positions_are_unfinished_games_of_these_lengths() -> None:
    table = open_table(TIC_TAC_TOE, 400)
    found = optimal._random_positions(table, [7, 9], seed=1)
    assert 50 < len(found) < 350
    assert {(table.seats()[slot] == FINISHED, len(table.history(slot))) for slot, _ in found} == {(False, 7)}


def test_more_positions_than_a_game_has_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(optimal, "_FRUITLESS", 2)
    with pytest.raises(TooFewPositions, match=r"have \d+ test positions, and not 20000"):
        draw_positions(TIC_TAC_TOE, 20_000, seed=0)


def test_players_are_asked_in_the_test_positions_themselves() -> None:
    positions, player = draw_positions(CONNECT_FOUR, 12, seed=1), Listed()
    share = optimal_share(CONNECT_FOUR, player, positions, temperature=0.0, seed=0)
    assert [tuple(history) for history in player.asked] == [position.history for position in positions]
    kept = []
    for position in positions:
        full = [column for column in range(7) if position.history.count(column) == 6]
        kept.append(min(set(range(7)) - set(full)) in position.optimal)
    assert (share.all.mean, share.all.n) == (np.mean(kept), 12)
    hard = [keeps for keeps, position in zip(kept, positions, strict=True) if position.hard]
    assert share.hard is not None
    assert (share.hard.mean, share.hard.n) == (np.mean(hard), len(hard))


def test_positions_are_kept_and_damaged_files_solved_again(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    solved = saved_positions(TIC_TAC_TOE, 30, seed=0)
    (file,) = (tmp_path / "flyball").iterdir()
    monkeypatch.setattr(optimal, "draw_positions", lambda *_: pytest.fail("solved again"))
    assert saved_positions(TIC_TAC_TOE, 30, seed=0) == solved
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file.write_bytes(file.read_bytes()[:-5])
    assert saved_positions(TIC_TAC_TOE, 30, seed=0) == solved
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert saved_positions(TIC_TAC_TOE, 30, seed=0) == solved, "no folder can be made there"


def test_operators_evaluations_load_judges_and_other_players() -> None:
    spec = open_table(TIC_TAC_TOE, 0).spec
    for name in (*JUDGES, "random"):
        assert load_player_or_judge(MemoryStore(), name, spec, CPU, TIC_TAC_TOE)
