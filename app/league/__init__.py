"""The league of models: members, ratings, matchmaking, retention. Pure."""

from app.league.admission import Retirement, admission, retirements
from app.league.audit import APART_ELO, Audit, Audited, audit
from app.league.bradley_terry import fit_bradley_terry
from app.league.cycles import Cycle, Misfit, find_cycle, misfit
from app.league.document import DamagedLeague, LeagueMetadata, dump_league, load_league
from app.league.elo import EloTable, UnratedAgent, elo_changes
from app.league.league import Agent, AgentKind, Games, League, baseline, founded
from app.league.matchmaking import Pick, categories, curve_weight, distribution, win_probability
from app.league.newton import NoConvergence
from app.league.plackett_luce import fit_plackett_luce
from app.league.played import PlayedGame, UnequalSeats
from app.league.pool import CANDIDATES, Pool, rate, saturated
from app.league.projection import LEAGUE_READS, fold_league, league_after
from app.league.ratings import LEAST_ERROR, Estimate, NotRated, OpponentScore, Prior, Ratings, performance_rating
from app.league.scale import ANCHORS, UNKNOWN, RatingPrior
from app.league.strategies import STRATEGIES, Strategy, Wanted, select
from app.league.totals import PairTotals, total, totals_of
from app.league.tournaments import Pairing, most_telling, placement, round_robin, tournaments

__all__ = [
    "ANCHORS",
    "APART_ELO",
    "CANDIDATES",
    "LEAGUE_READS",
    "LEAST_ERROR",
    "STRATEGIES",
    "UNKNOWN",
    "Agent",
    "AgentKind",
    "Audit",
    "Audited",
    "Cycle",
    "DamagedLeague",
    "EloTable",
    "Estimate",
    "Games",
    "League",
    "LeagueMetadata",
    "Misfit",
    "NoConvergence",
    "NotRated",
    "OpponentScore",
    "PairTotals",
    "Pairing",
    "Pick",
    "PlayedGame",
    "Pool",
    "Prior",
    "RatingPrior",
    "Ratings",
    "Retirement",
    "Strategy",
    "UnequalSeats",
    "UnratedAgent",
    "Wanted",
    "admission",
    "audit",
    "baseline",
    "categories",
    "curve_weight",
    "distribution",
    "dump_league",
    "elo_changes",
    "find_cycle",
    "fit_bradley_terry",
    "fit_plackett_luce",
    "fold_league",
    "founded",
    "league_after",
    "load_league",
    "misfit",
    "most_telling",
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
