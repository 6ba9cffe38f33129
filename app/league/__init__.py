"""The league of models: members, ratings, matchmaking, retention. Pure."""

from app.league.admission import admission, retirements
from app.league.audit import APART_ELO, Audit, audit
from app.league.bradley_terry import fit_bradley_terry
from app.league.cycles import Cycle, find_cycle
from app.league.document import DamagedLeague, dump_league, load_league
from app.league.league import LEAGUE_READS, Agent, League, fold_league, founded, league_after
from app.league.matchmaking import (
    STRATEGIES,
    Pick,
    Strategy,
    Wanted,
    curve_weight,
    distribution,
    select,
    win_probability,
)
from app.league.pool import CANDIDATES, Pool, rate, saturated
from app.league.ratings import LEAST_ERROR, Estimate, OpponentScore, RatingPrior, Ratings, performance_rating
from app.league.totals import PairTotals, total, totals_of
from app.league.tournaments import Pairing, placement, round_robin, tournaments

__all__ = [
    "APART_ELO",
    "CANDIDATES",
    "LEAGUE_READS",
    "LEAST_ERROR",
    "STRATEGIES",
    "Agent",
    "Audit",
    "Cycle",
    "DamagedLeague",
    "Estimate",
    "League",
    "OpponentScore",
    "PairTotals",
    "Pairing",
    "Pick",
    "Pool",
    "RatingPrior",
    "Ratings",
    "Strategy",
    "Wanted",
    "admission",
    "audit",
    "curve_weight",
    "distribution",
    "dump_league",
    "find_cycle",
    "fit_bradley_terry",
    "fold_league",
    "founded",
    "league_after",
    "load_league",
    "performance_rating",
    "placement",
    "rate",
    "retirements",
    "round_robin",
    "saturated",
    "select",
    "total",
    "totals_of",
    "tournaments",
    "win_probability",
]
