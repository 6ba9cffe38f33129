"""Totals of games that share no deal or opening."""

from flyball.app.league.totals import PairTotals


def of_games(first: str, second: str, wins: float, draws: float, losses: float) -> PairTotals:
    """Count independent games."""
    games = round(wins + draws + losses)
    return PairTotals(first, second, games, games, score=wins + draws / 2, squares=wins + draws / 4)
