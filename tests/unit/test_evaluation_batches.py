import pytest
from pydantic import ValidationError

from app.config import GAMES
from app.core import FlyballError, ModelHash
from app.play.gauntlet import BatchResult, BatchSpec, GauntletSpec, NothingPlayed, Opponent
from app.play.match_statistics import MatchGames

HERO, CHAMPION = (ModelHash(letter * 64) for letter in "ab")
CONFIG = GAMES["connect_four_2p"]
FAILED = FlyballError("The worker ended.", hint="Look at dmesg.")


@pytest.mark.parametrize(("kind", "model"), [("model", None), ("random", CHAMPION)])
def test_opponent_has_a_model_exactly_when_it_is_one(kind: str, model: ModelHash | None) -> None:
    with pytest.raises(ValidationError, match="an opponent has a model exactly when"):
        Opponent(name="x", kind=kind, model=model, games=2)


def gauntlet(*games: int, batch_games: int = 40) -> GauntletSpec:
    settings = CONFIG.evaluation.replace(batch_games=batch_games)
    opponents = [Opponent(name="random", kind="random", games=games[0])]
    opponents += [Opponent(name="champion", kind="model", model=CHAMPION, games=count) for count in games[1:]]
    config = CONFIG.replace(evaluation=settings)
    return GauntletSpec(store="store", config=config, model=HERO, opponents=opponents, seed=1)


def outcome(games: int, verdict: str = "won") -> dict:
    games_played = MatchGames(
        scores=[1.0 if verdict == "won" else 0.0] * games,
        verdicts=[verdict] * games,
        lengths=[9] * games,
        fingerprints=[str(game) for game in range(games)],
    )
    return BatchResult(games=games_played, seconds=0.5).model_dump(mode="json")


def test_a_single_opponent_is_split_too() -> None:
    """One future per opponent would give a single champion no parallelism."""
    assert [(batch.first, batch.games) for batch in gauntlet(100).batches] == [(0, 40), (40, 40), (80, 20)]


def test_batch_of_any_size_holds_whole_rotations() -> None:
    assert {batch.games for batch in gauntlet(10, batch_games=1).batches} == {2}
    assert {batch.games for batch in gauntlet(12, batch_games=5).batches} == {4}


def test_the_parts_say_who_plays_which_games() -> None:
    parts = [BatchSpec.model_validate(part) for part in gauntlet(40, 60).parts]
    assert [(part.batch.opponent.name, part.batch.first) for part in parts] == [
        ("random", 0),
        ("champion", 0),
        ("champion", 40),
    ]
    assert {(part.model, part.seed) for part in parts} == {(HERO, 1)}


def test_a_model_is_never_its_own_opponent() -> None:
    batch = {"opponent": {"name": "champion", "kind": "model", "model": HERO, "games": 2}, "first": 0, "games": 2}
    with pytest.raises(ValidationError, match="cannot be its own opponent"):
        BatchSpec(store="store", config=CONFIG, model=HERO, batch=batch, seed=0)


def test_a_lost_batch_costs_its_games_and_the_rest_stand() -> None:
    result = gauntlet(40, 60).gather([outcome(40), FAILED, outcome(20, "lost")])
    assert [(match.opponent, match.games, match.wins) for match in result.results] == [
        ("random", 40, 40),
        ("champion", 20, 0),
    ]
    assert (result.lost_games, result.seconds) == (40, 1.0)
    assert "The worker ended." in result.error


def test_each_opponents_result_is_of_its_own_games() -> None:
    """The interval is not that of the aggregate."""
    result = gauntlet(40, 40).gather([outcome(40), outcome(40, "lost")])
    assert [match.score.mean for match in result.results] == [1.0, 0.0]


def test_an_opponent_without_games_has_no_result() -> None:
    assert [match.opponent for match in gauntlet(40, 40).gather([FAILED, outcome(40)]).results] == ["champion"]


def test_a_gauntlet_of_which_nothing_was_played_has_failed() -> None:
    with pytest.raises(NothingPlayed, match=r"None of 80 games.*The worker ended") as failed:
        gauntlet(40, 40).gather([FAILED, FAILED])
    assert failed.value.hint == "Look at dmesg."
