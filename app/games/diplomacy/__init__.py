"""Diplomacy by our own rules: maps, orders, adjudication, saved games, bots.

>>> from flyball import diplomacy
>>> game = diplomacy.Game(diplomacy.STANDARD)
>>> turn = game.play({"FRANCE": ["A PAR - BUR", "A MAR S A PAR - BUR"], "GERMANY": ["A MUN - BUR"]})
>>> turn.results["A MUN"]
('bounce',)
>>> game.position.phase.name
'F1901M'
"""

from flyball.app.games.diplomacy.bots import BOTS
from flyball.app.games.diplomacy.game import Ending, Game, Outcome, Turn, play_phase
from flyball.app.games.diplomacy.legal import legal_orders, next_orders, trie
from flyball.app.games.diplomacy.maps import BadMap, Map, Unit, parse_map
from flyball.app.games.diplomacy.orders import BadOrder, Order, parse_order, write_order
from flyball.app.games.diplomacy.position import Phase, Position
from flyball.app.games.diplomacy.saved import BadSavedGame, load, save
from flyball.app.games.diplomacy.scoring import material_scores, placed_scores, ranks
from flyball.app.games.diplomacy.small import SMALL
from flyball.app.games.diplomacy.standard import STANDARD
from flyball.app.games.diplomacy.text import prompt

__all__ = [
    "BOTS",
    "SMALL",
    "STANDARD",
    "BadMap",
    "BadOrder",
    "BadSavedGame",
    "Ending",
    "Game",
    "Map",
    "Order",
    "Outcome",
    "Phase",
    "Position",
    "Turn",
    "Unit",
    "legal_orders",
    "load",
    "material_scores",
    "next_orders",
    "parse_map",
    "parse_order",
    "placed_scores",
    "play_phase",
    "prompt",
    "ranks",
    "save",
    "trie",
    "write_order",
]
