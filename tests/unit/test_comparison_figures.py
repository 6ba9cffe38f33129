"""Figures of a comparison: intervals, pairing by seed, recorded matches."""

from pathlib import Path

import pytest
from rotations import rotations

from flyball.app.comparison.run import ConfigFigures, RunFigures
from flyball.app.comparison.strength import MatchRecord, players_of
from flyball.app.comparison.study import Study
from flyball.app.comparison.summary import interval, summarise
from flyball.app.config import GAMES, RunSettings
from flyball.app.core import BadUsage
from flyball.app.league.totals import PairTotals

KEYS = ("tic_tac_toe_2p", "connect_four_2p")
MODEL = {name: f"{number:064x}" for number, name in enumerate(("all 0", "all 1", "none 0", "none 1"), 1)}


def figures(arm: str, seed: int, trainings: int = 1) -> RunFigures:
    one = ConfigFigures(champion=MODEL[f"{arm} {seed}"], step=1, games=2, rows=10, counts={"trainings": trainings})
    return RunFigures(
        arm=arm,
        seed=seed,
        configs=dict.fromkeys(KEYS, one),
        events=5,
        used={"training": 0.5},
        overhead=0.01,
        counts={"trainings": 0},
        unfolded=(),
    )


def test_interval_is_students():
    one = interval([1.0, 2.0, 3.0, 4.0, 5.0])  # the standard error is sqrt(2.5 / 5); t(4) = 2.776
    assert (one.mean, one.lower, one.upper) == pytest.approx((3.0, 1.0370, 4.9630), abs=1e-3)
    many = interval([0.0, 1.0] * 50)  # t(99) = 1.984, the standard error 0.05025
    assert many.upper == pytest.approx(0.5 + 1.984 * 0.05025, abs=1e-4)
    assert interval([7.0]).model_dump() == {"mean": 7.0, "lower": None, "upper": None}


def test_differences_are_paired_by_seed():
    elo = {MODEL["all 0"]: 200.0, MODEL["none 0"]: 100.0, MODEL["all 1"]: 1300.0, MODEL["none 1"]: 1200.0}
    runs = [figures("none", 0), figures("all", 0), figures("all", 1, trainings=3), figures("none", 1)]
    none, every = summarise(runs, {KEYS[0]: elo, KEYS[1]: {model: value + 50 for model, value in elo.items()}})
    assert (none.arm, every.arm, every.seeds) == ("none", "all", 2)
    assert every.strength.elo.mean == 775.0
    assert every.strength.over_all is none.strength.over_none is None
    over = every.strength.over_none
    assert over is not None
    assert (over.mean, over.lower, over.upper) == (100.0, 100.0, 100.0)  # the seeds differ much, the pairs do not
    assert every.configs[KEYS[1]].elo.mean == 800.0
    assert every.means == {"trainings": 4.0, "games": 4.0, "rows": 20.0}
    assert every.used == {"training": 0.5}


def totals(first: str, second: str, games: int = 4) -> PairTotals:
    return PairTotals.of_rotations(first, second, rotations(games, 0, 0))


def test_match_record_plays_pairs_of_the_round_robin_once(tmp_path):
    config, players = GAMES[KEYS[0]], ["random", *MODEL.values()]
    record = MatchRecord(tmp_path, config)
    assert sum(map(len, record.missing(players, 4).values())) == 10
    record.add([totals(players[2], players[1]), totals("random", players[1])])
    with record.path.open("ab") as file:
        file.write(b'{"first": "random", "sec')  # interrupted here
    again = MatchRecord(tmp_path, config)
    assert again.pairs == record.pairs
    assert again.missing(players[:3], 4) == {"random": [players[2]]}
    assert again.missing(players[:3], 6) == {"random": players[1:3], players[1]: [players[2]]}
    again.add([totals("random", players[2])])
    assert MatchRecord(tmp_path, config).missing(players[:3], 4) == {}
    config = GAMES[KEYS[1]]
    runs = [figures("all", 0), figures("none", 0), figures("all", 0)]
    assert players_of(config, runs) == ["random", "heuristic", MODEL["all 0"], MODEL["none 0"]]


def test_folder_of_another_study_is_refused(tmp_path: Path):
    study = Study(settings=RunSettings(), seconds=60.0, cores=1, troubles=())
    study.claim(tmp_path)
    study.claim(tmp_path)
    with pytest.raises(BadUsage, match="other seconds and troubles"):
        study.replace(seconds=30.0, troubles=("dead-worker",)).claim(tmp_path)
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(BadUsage, match="not this version's"):
        study.claim(tmp_path)
