"""Public API for engineers and researchers.

Other names may move between versions.

Do what the commands do:
    train: train a policy in this process; return a TrainingResult with its best checkpoint and scores.
    evaluate: play a model's games against opponents; return an EvaluationResult.
    exploitability: what best responses gain against a model, in small games; return an ExploitabilityResult.
    optimal_moves: the share of a model's moves that are optimal, in games with a solver; return an OptimalResult.
    load_policy: load a checkpoint, a run's best policy or an exported one as a LoadedPolicy, which acts.
    participate: do a run's playing, training or evaluating by your own program; return a Participant.
    connect, connect_async: open a run as a Connection or AsyncConnection: publish, subscribe, state, journal.
    simulate: run the controllers on a modelled cluster; return a SimulationResult.
    check_game, check_network, check_player, check_backend: return the faults of a configuration's parts.

Games and settings:
    GAMES: configurations by key, such as ``GAMES["connect_four_2p"]``.
    GameConfig: one configuration: game, players, network, learning, evaluation.
    RunSettings: all settings of a run.
    Table, TableSpec, open_table: a batch of games, and their description; open the table of a configuration.
    diplomacy: the module of Diplomacy: maps, orders, games, saved games, bots.
    shogi: the module of Shogi's notations: SFEN, USI moves, KIF records, and games move by move.
    FINISHED, IllegalAction: the seat to move in a finished game; the error for an illegal action.

Models and matches:
    BlobStore, FileStore, MemoryStore: models and shards, each under the hash of its content; in a folder, in memory.
    Player, load_player: anything that plays; load a model, a bot or ``"random"``.
    MatchPlan, play_match: games, seed and temperature; play a match and count its results.

Objects of your own:
    Game: base class of a game, which plays one game at a time.
    Symmetry, symmetry: a relabelling that leaves a game the same; makes one.
    Backend, GameInfo: how models of a configuration are made and played; a backend's description of a configuration.
    Training: a trainer's inputs, and the storing of its result.
    NetworkShape: sizes of a network's inputs and outputs.
    Controller: base class of a controller: a pure function of its rows, an event and the FeedbackStates.
    Watched: what a controller's rule compares, for displays.
    FeedbackState, state_of: what is known of a configuration, folded from events; look one up by its key.
    Row, handles: base of a controller's rows; marks the handler of an event type.
    Step, Emission: the result of a handler: rows to change, and events to emit.
    Curves: receives events, and writes points of training and evaluation curves.

Events and journals:
    events: the module of all event types, such as ``events.ModelPromoted``.
    Event, Payload: an event with position, time and cause; its data.
    JournalReader, SqliteJournalReader: reads a journal; opens one in a file, also while the run is running.
    history: iterates over a journal's typed events.

Errors:
    FlyballError: base of all errors that are raised on purpose, with a message and a hint.

``import flyball`` is cheap: a name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flyball.app import events
    from flyball.app.api.checking import check_backend, check_game, check_network, check_player
    from flyball.app.api.connection import AsyncConnection, Connection, connect, connect_async
    from flyball.app.api.evaluation import EvaluationResult, evaluate
    from flyball.app.api.exploitability import ExploitabilityResult, exploitability
    from flyball.app.api.optimal import OptimalResult, optimal_moves
    from flyball.app.api.participant import Participant, participate
    from flyball.app.api.policies import LoadedPolicy, load_policy
    from flyball.app.api.simulation import SimulationResult, simulate
    from flyball.app.api.training import train
    from flyball.app.backends import Backend, GameInfo
    from flyball.app.config import GAMES, GameConfig, RunSettings
    from flyball.app.controllers import Controller, FeedbackState, Watched, state_of
    from flyball.app.core import FlyballError, NetworkShape
    from flyball.app.events import Emission, Event, Payload, Row, Step, handles
    from flyball.app.games import (
        FINISHED,
        Game,
        IllegalAction,
        Symmetry,
        Table,
        TableSpec,
        diplomacy,
        open_table,
        shogi,
        symmetry,
    )
    from flyball.app.journal import JournalReader, SqliteJournalReader, history
    from flyball.app.learning.training import Training
    from flyball.app.play.matches import MatchPlan, play_match
    from flyball.app.play.players import Player, load_player
    from flyball.app.store import BlobStore, FileStore, MemoryStore
    from flyball.app.telemetry import Curves
    from flyball.app.train.networks import TrainingResult

    __version__: str

__all__ = [
    "FINISHED",
    "GAMES",
    "AsyncConnection",
    "Backend",
    "BlobStore",
    "Connection",
    "Controller",
    "Curves",
    "Emission",
    "EvaluationResult",
    "Event",
    "ExploitabilityResult",
    "FeedbackState",
    "FileStore",
    "FlyballError",
    "Game",
    "GameConfig",
    "GameInfo",
    "IllegalAction",
    "JournalReader",
    "LoadedPolicy",
    "MatchPlan",
    "MemoryStore",
    "NetworkShape",
    "OptimalResult",
    "Participant",
    "Payload",
    "Player",
    "Row",
    "RunSettings",
    "SimulationResult",
    "SqliteJournalReader",
    "Step",
    "Symmetry",
    "Table",
    "TableSpec",
    "Training",
    "TrainingResult",
    "Watched",
    "__version__",
    "check_backend",
    "check_game",
    "check_network",
    "check_player",
    "connect",
    "connect_async",
    "diplomacy",
    "evaluate",
    "events",
    "exploitability",
    "handles",
    "history",
    "load_player",
    "load_policy",
    "open_table",
    "optimal_moves",
    "participate",
    "play_match",
    "shogi",
    "simulate",
    "state_of",
    "symmetry",
    "train",
]

_NAMES = {
    "flyball.app": ("events",),
    "flyball.app.api.checking": ("check_backend", "check_game", "check_network", "check_player"),
    "flyball.app.api.connection": ("AsyncConnection", "Connection", "connect", "connect_async"),
    "flyball.app.api.evaluation": ("EvaluationResult", "evaluate"),
    "flyball.app.api.exploitability": ("ExploitabilityResult", "exploitability"),
    "flyball.app.api.optimal": ("OptimalResult", "optimal_moves"),
    "flyball.app.api.participant": ("Participant", "participate"),
    "flyball.app.api.policies": ("LoadedPolicy", "load_policy"),
    "flyball.app.api.simulation": ("SimulationResult", "simulate"),
    "flyball.app.api.training": ("train",),
    "flyball.app.backends": ("Backend", "GameInfo"),
    "flyball.app.config": ("GAMES", "GameConfig", "RunSettings"),
    "flyball.app.controllers": ("Controller", "FeedbackState", "Watched", "state_of"),
    "flyball.app.core": ("FlyballError", "NetworkShape"),
    "flyball.app.events": ("Emission", "Event", "Payload", "Row", "Step", "handles"),
    "flyball.app.games": (
        "FINISHED",
        "Game",
        "IllegalAction",
        "Symmetry",
        "Table",
        "TableSpec",
        "diplomacy",
        "open_table",
        "shogi",
        "symmetry",
    ),
    "flyball.app.journal": ("JournalReader", "SqliteJournalReader", "history"),
    "flyball.app.learning.training": ("Training",),
    "flyball.app.play.matches": ("MatchPlan", "play_match"),
    "flyball.app.play.players": ("Player", "load_player"),
    "flyball.app.store": ("BlobStore", "FileStore", "MemoryStore"),
    "flyball.app.telemetry": ("Curves",),
    "flyball.app.train.networks": ("TrainingResult",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name == "__version__":
        from importlib.metadata import version

        return version("flyball")
    if name not in _HOMES:
        raise AttributeError(f"module 'flyball' has no attribute {name!r}")
    home = _HOMES[name]
    return import_module(f"{home}.{name}") if home == "flyball.app" else getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
