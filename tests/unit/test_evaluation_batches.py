import pytest
from pydantic import ValidationError

from flyball.app.config import GAMES
from flyball.app.core import FlyballError, ModelHash
from flyball.app.play.gauntlet import BatchResult, BatchSpec, GauntletSpec, NothingPlayed, Opponent
from flyball.app.play.match_statistics import MatchGames

HERO, CHAMPION = (ModelHash(letter * 64) for letter in "ab")
CONFIG = GAMES["connect_four_2p"]
FAILED = FlyballError("The worker ended.", hint="Look at dmesg.")


@pytest.mark.parametrize(("kind", "model"), [("model", None), ("random", CHAMPION)])
def test_opponent_has_a_model_exactly_when_it_is_one(kind: str, model: ModelHash | None) -> None:
    with pytest.raises(
        ValidationError, match=f"an opponent has a model exactly when its kind is 'model', not '{kind}'"
    ):
        Opponent(name="x", kind=kind, model=model, games=2)


def gauntlet(*games: int, batch_games: int = 40) -> GauntletSpec:
    settings = CONFIG.evaluation.replace(batch_games=batch_games)
    opponents = [Opponent(name="random", kind="random", games=games[0])]
    opponents += [Opponent(name="champion", kind="model", model=CHAMPION, games=count) for count in games[1:]]
    config = CONFIG.replace(evaluation=settings)
    return GauntletSpec(store="store", config=config, model=HERO, opponents=opponents, seed=1)


def outcome(games: int, verdict: str = "won") -> BatchResult:
    games_played = MatchGames(
        scores=[1.0 if verdict == "won" else 0.0] * games,
        verdicts=[verdict] * games,
        lengths=[9] * games,
        fingerprints=[str(game) for game in range(games)],
    )
    return BatchResult(games=games_played, seconds=0.5)


def test_batches_of_each_opponent_hold_whole_rotations() -> None:
    """One future per opponent would give a single champion no parallelism."""
    parts = [BatchSpec.model_validate(part) for part in gauntlet(100, 60).parts]
    assert [(part.batch.opponent.name, part.batch.first, part.batch.games) for part in parts] == [
        *(("random", 0, 40), ("random", 40, 40), ("random", 80, 20), ("champion", 0, 40), ("champion", 40, 20))
    ]
    assert {(part.model, part.seed) for part in parts} == {(HERO, 1)}
    for games, batch_games, size in ((10, 1, 2), (12, 5, 4)):
        assert {batch.games for batch in gauntlet(games, batch_games=batch_games).batches} == {size}


def test_a_model_is_never_its_own_opponent() -> None:
    batch = {"opponent": {"name": "champion", "kind": "model", "model": HERO, "games": 2}, "first": 0, "games": 2}
    with pytest.raises(ValidationError, match="cannot be its own opponent"):
        BatchSpec(store="store", config=CONFIG, model=HERO, batch=batch, seed=0)


def test_a_lost_batch_costs_its_games_and_the_rest_stand() -> None:
    result = gauntlet(40, 60).gather([outcome(40), FAILED, outcome(20, "lost")])
    played = [(match.opponent, match.games, match.wins, match.score.mean) for match in result.results]
    assert played == [("random", 40, 40, 1.0), ("champion", 20, 0, 0.0)]
    assert (result.lost_games, result.seconds) == (40, 1.0)
    assert "The worker ended." in result.error
    assert [match.opponent for match in gauntlet(40, 40).gather([FAILED, outcome(40)]).results] == ["champion"]
    with pytest.raises(NothingPlayed, match=r"None of 80 games.*The worker ended") as failed:
        gauntlet(40, 40).gather([FAILED, FAILED])
    assert failed.value.hint == "Look at dmesg."
