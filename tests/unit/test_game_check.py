"""Check of games: sound games pass; each rule has a broken game."""

import pytest

from flyball.app.config import GameConfig
from flyball.app.games import game_check
from flyball.app.games.game_check import check_game


def config(name: str, players: int = 2) -> GameConfig:
    return GameConfig(key=f"race_{players}p", game=f"broken_games:{name}", players=players)


@pytest.mark.parametrize(
    "name", ["Race", "Planes", "ScaledChips", "Undecided", "Race16", "RefusesLimits", "Staked", "Helpful", "Three"]
)
def test_check_of_a_sound_game_finds_nothing(name: str) -> None:
    assert check_game(config(name, players=3 if name == "Three" else 2)) == []


def test_report_has_outcomes_in_own_units_and_states_told_apart() -> None:
    report = game_check.examine_game(config("Staked"))
    assert (report.outcomes, report.scale) == (pytest.approx((-0.8, 0.8)), 5)
    liars = GameConfig(key="liars_2p", game="liars_dice", players=2)
    whole, part = (
        game_check.examine_game(liars.replace(observation=name)).told_apart for name in (None, "observation")
    )
    assert whole[0] == whole[1] == part[1] > part[0]


@pytest.mark.parametrize(
    ("name", "where", "what"),
    [
        # what cannot be opened
        ("Nobody", "open", "cannot be imported"),
        ("NO_GAME", "open", "is a dict"),
        ("failing", "open", "OSError: no disk"),
        ("Three", "open", "is played by 3, the configuration says 2"),
        ("Nameless", "open", "has no method seat"),
        ("Unversioned", "open", "version is missing"),
        ("Crowded", "open", "players is 8"),
        ("Flat", "open", "planes (2, 3, 4) do not fit into 13 features"),
        ("Listed", "open", "planes is [1, 1, 12]"),
        ("PlanesInWords", "open", "planes is '3 x 3'"),
        ("Asymmetric", "open", "symmetries is ('left_right',)"),
        ("Negative", "open", "planes is (-1, -1, 12)"),
        ("OtherType", "open", "observation_type"),
        ("Lopsided", "open", "observation of the symmetry twice does not name each of 13 indices once"),
        ("Uninitialised", "open", "__init__() raised OSError: no licence"),
        ("NotATable", "open", "returned an object of NotATable without truncated, history"),
        ("Unsearchable", "open", "returned an object of Unsearchable without copy_from, branch"),
        ("NoSpec", "open", "not a TableSpec"),
        ("Unnamed", "open", "rules_version is ''"),
        ("Unscaled", "open", "scale is None"),
        ("ScaledToNothing", "open", "scale is 0"),
        ("ScaledInWords", "open", "scale is '255'"),
        ("ScaledInPart", "open", "scale has 3 numbers for 13 features"),
        ("Chips", "scale", "Observed number 12 reaches 100"),
        ("Levelled", "open", "levels is ('easy',)"),
        ("Champion", "open", "levels names 'champion'"),
        ("Free", "open", "outcome_scale is 0"),
        ("Plural", "open", "Plural.outcome_scales is nothing that a game has"),
        ("Earning", "open", "a table with earnd, which no table has"),
        # what a class returns
        ("SeatTwo", "play", "seat() returned 2 after move"),
        ("NoMoves", "play", "legal() returned no action after move"),
        ("Masked", "play", "legal() returned [np.True_"),
        ("Beyond", "play", "legal() returned [0, 1, 2, 3]"),
        ("Twice", "play", "legal() returned [0, 1, 1] after move 0 of the game of seed 0"),
        ("Falling", "play", "raised KeyError: 'four' (broken_games.py, line "),
        ("Short", "play", "observe(0) returned 2 numbers"),
        ("Worded", "play", "observe(0) returned no numbers"),
        ("Infinite", "play", "observe(0) returned inf at index 0"),
        ("Large", "play", "a number that uint8 does not hold"),
        ("OneReturn", "play", "returns() returned 1 after move"),
        ("BigReturns", "play", "returns() returned (2, -2)"),
        ("Generous", "play", "returns() returned (1, 0)"),
        ("Endless", "end", "not over after 50 decisions"),
        ("ForcedForEver", "play", "has not returned None after move 60"),
        # determinism and looking
        ("Forgetful", "determinism", "Played again"),
        ("Unseeded", "determinism", "Played again"),
        ("Watched", "perspective", "view() of the seat to move is not what observe() shows"),
        ("Shared", "perspective", "changes with the next step"),
        ("OtherView", "perspective", "view() of the seat to move"),
        # legality and forced moves
        ("PlaysAll", "legality", "is illegal by the mask, and step() played it"),
        ("Race16Masks", "legality", "is illegal by the mask, and step() played it"),
        ("RefusesAll", "legality", "the mask allows was refused"),
        ("HalfPlayed", "legality", "was refused, and changed the game"),
        ("AsksForced", "forced moves", "has 1 legal actions"),
        # outcomes
        ("EarlyReturns", "returns", "A game that goes on has returns [0.5, -0.5]"),
        ("CutReturns", "returns", "A truncated game has outcomes [1.0, -1.0]"),
        ("LargeReturns", "returns", "Outcomes are"),
        ("UnevenReturns", "returns", "with the sum 2"),
        ("Drawn", "outcomes", "at random, 128 games had no outcome but 0"),
        ("Fixed", "outcomes", "at random, 16 games all had the outcome [1.0, -1.0]"),
        ("Over", "outcomes", "All 16 games ended without a decision"),
        ("Unlimited", "truncation", "not cut off"),
        # slots, shapes, seeds, histories
        ("Neighbours", "history", "A step in other slots changed its history"),
        ("WideSeats", "shape", "seats() returned int64 [16]"),
        ("SeatNine", "seats", "9"),
        ("ByteObservations", "shape", "observations uint8 [16, 13]"),
        ("Careless", "reset", "1 seed for 2 slots"),
        ("Renumbered", "replay", "By its own rules: move 0"),
        ("Crashing", "play", "IndexError: out of bounds (broken_games.py, line "),
        ("Uncopied", "copies", "A copied game and its original"),
        # symmetries and players
        ("Mirrored", "symmetries", "The image under swapped is seen otherwise"),
        ("Speechless", "heuristics", "The player heuristic returned float32"),
        ("Hopeless", "heuristics", "no finite weight of a legal action"),
        ("Raising", "heuristics", "ZeroDivisionError: nobody"),
        ("Doubted", "replay", "By a doubter"),
    ],
)
def test_check_of_a_broken_game_names_rule_and_fault(name, where, what, monkeypatch) -> None:
    monkeypatch.setattr(game_check, "LONGEST", 50)
    monkeypatch.setattr("flyball.app.games.game.ENDLESS", 60)
    found = {finding.where.partition(" (")[0]: finding for finding in check_game(config(name))}
    assert where in found, found
    assert what in found[where].what
    assert found[where].hint


def test_fault_is_placed_by_seed_and_decision() -> None:
    (found,) = check_game(config("Unlimited"), games=2, seed=40)
    assert found.where.startswith(("truncation (seed 40, decision", "truncation (seed 41, decision"))


def test_check_of_rare_outcomes_plays_more_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody wins any of the first 16 games."""
    assert not check_game(config("Rare"))
    monkeypatch.setattr(game_check, "MORE_GAMES", game_check.GAMES)
    (found,) = check_game(config("Rare"))
    assert "16 games had no outcome but 0" in found.what
