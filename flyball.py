"""Public API: what researchers import; other names may move between versions.

Games and settings:
    GAMES: configurations by key, such as ``GAMES["connect_four_2p"]``.
    GameConfig: one configuration: game, players, network, PPO, evaluation.
    RunSettings: all settings of a run.
    Table, open_table: a batch of games; open the one of a configuration.
    Game: base class of a game of your own, which plays one game.
    TableSpec, Symmetry, symmetry, FINISHED, IllegalAction: what a game or table of your own is made of.

Models and matches:
    FileStore: models and shards in a folder, each under the hash of its content.
    Player, load_player: anything that plays; load a model, a bot or ``"random"``.
    MatchPlan, play_match: games, seed and temperature; play a match and count its results.

Trainers:
    Training: what a trainer is asked for, and the storing of its result.

Journals:
    SqliteJournalReader: opens a journal for reading, also while the run is running.
    history: iterates over a journal's typed events.
    Event, Payload: an event with position, time and cause; what it says.

Controllers:
    Controller: base class of a controller: a pure function of its rows, an event and the FeedbackStates.
    FeedbackState: what is known of a configuration, folded from events.
    Step, Emission: what a controller returns: rows and events to emit.

``import flyball`` is cheap: a name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.config import GAMES, GameConfig, RunSettings
    from app.controllers import Controller, FeedbackState
    from app.events import Emission, Event, Payload, Step
    from app.games import FINISHED, Game, IllegalAction, Symmetry, Table, TableSpec, open_table, symmetry
    from app.journal import SqliteJournalReader, history
    from app.learning.training import Training
    from app.play.matches import MatchPlan, play_match
    from app.play.players import Player, load_player
    from app.store import FileStore

    __version__: str

__all__ = [
    "FINISHED",
    "GAMES",
    "Controller",
    "Emission",
    "Event",
    "FeedbackState",
    "FileStore",
    "Game",
    "GameConfig",
    "IllegalAction",
    "MatchPlan",
    "Payload",
    "Player",
    "RunSettings",
    "SqliteJournalReader",
    "Step",
    "Symmetry",
    "Table",
    "TableSpec",
    "Training",
    "__version__",
    "history",
    "load_player",
    "open_table",
    "play_match",
    "symmetry",
]

_NAMES = {
    "app.config": ("GAMES", "GameConfig", "RunSettings"),
    "app.controllers": ("Controller", "FeedbackState"),
    "app.events": ("Emission", "Event", "Payload", "Step"),
    "app.games": (*("FINISHED", "Game", "IllegalAction", "Symmetry", "Table", "TableSpec", "open_table", "symmetry"),),
    "app.journal": ("SqliteJournalReader", "history"),
    "app.learning.training": ("Training",),
    "app.play.matches": ("MatchPlan", "play_match"),
    "app.play.players": ("Player", "load_player"),
    "app.store": ("FileStore",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name == "__version__":
        from importlib.metadata import version

        return version("flyball")
    if name not in _HOMES:
        raise AttributeError(f"module 'flyball' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
