"""The league of models: members, ratings, matchmaking, retention. Pure."""

from app.league.admission import Retirement, admission, retirements
from app.league.agents import Agent, AgentKind, HeadToHead, baseline, head_to_head
from app.league.document import DamagedLeague, LeagueMetadata, dump_league, load_league
from app.league.keeper import LeagueKeeper, LeagueRow
from app.league.league import Games, League, founded
from app.league.matchmaking import Pick, categories, curve_weight, distribution, lineup, win_probability
from app.league.pairing import Pairing, most_telling, placement, round_robin
from app.league.projection import LEAGUE_READS, fold_league, league_after
from app.league.strategies import STRATEGIES, Strategy, Wanted, select

__all__ = [
    "LEAGUE_READS",
    "STRATEGIES",
    "Agent",
    "AgentKind",
    "DamagedLeague",
    "Games",
    "HeadToHead",
    "League",
    "LeagueKeeper",
    "LeagueMetadata",
    "LeagueRow",
    "Pairing",
    "Pick",
    "Retirement",
    "Strategy",
    "Wanted",
    "admission",
    "baseline",
    "categories",
    "curve_weight",
    "distribution",
    "dump_league",
    "fold_league",
    "founded",
    "head_to_head",
    "league_after",
    "lineup",
    "load_league",
    "most_telling",
    "placement",
    "retirements",
    "round_robin",
    "select",
    "win_probability",
]
