"""The league of models: members, ratings, matchmaking, retention. Pure."""

from app.league.admission import Retirement, admission, retirements
from app.league.agents import Agent, AgentKind, HeadToHead, baseline, met
from app.league.document import DamagedLeague, Metadata, dump_league, load_league
from app.league.league import Games, League, founded
from app.league.matchmaking import Pick, categories, curve_weight, distribution, lineup, win_probability
from app.league.pairing import Pairing, most_telling, placement, round_robin
from app.league.projection import READS, folded
from app.league.strategies import STRATEGIES, Strategy, Wanted, select

__all__ = [
    "READS",
    "STRATEGIES",
    "Agent",
    "AgentKind",
    "DamagedLeague",
    "Games",
    "HeadToHead",
    "League",
    "Metadata",
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
    "folded",
    "founded",
    "lineup",
    "load_league",
    "met",
    "most_telling",
    "placement",
    "retirements",
    "round_robin",
    "select",
    "win_probability",
]
