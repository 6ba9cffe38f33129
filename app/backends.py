"""Backends: how the models of a configuration are made and played.

A backend is a description and the names of six jobs. Daemons run the jobs, and know nothing else of it. Each job is a
function ``job(spec, report) -> result``; spec, reports and result are JSON (``flyball.app.engine.Job``). It runs in a
process of its own. ``flyball.app.job_specs`` has the fields of specs and results. A result may have more, which are
left out:

- ``initialise``: ``InitialiseSpec``, ``ModelResult``
- ``play``: ``SelfplaySpec``, ``SelfplayResult``
- ``inspect``: ``InspectionSpec``, ``InspectionResult``
- ``train``: ``TrainSpec``, ``ModelResult``
- ``match``: ``BatchSpec``, ``BatchResult``
- ``distribute``: ``DistributionSpec``, ``DistributionResult``

Every spec has the fields of ``JobContext``: the store, which ``flyball.app.store.open_store`` opens, and where networks
run. A job raises ``MissingDevice`` rather than run on another device. ``processes`` is 1, or in ``train`` how many may
share the training.

``config``'s ``evaluation.opening_plies`` may be None: as the game needs (``EvaluationSettings.openings``).

Specs may get further keys in later versions. For the same spec a job returns the same result on the same device, except
for values called ``seconds``, because a job may run twice. Models and shards are named by the hash of their content. A
model has a ``Manifest`` (``flyball.app.store``). A configuration's ``options`` are for backends of the user's own. A
training raises ``TrainingDiverged`` if its update has to be discarded, ``UnfitData`` for unusable shards or base
models; an error of the user's own may have their ``code``, "diverged" or "bad_data".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from flyball.app.config import (
    DEFAULT_BACKEND,
    EXTERNAL_BACKEND,
    LANGUAGE_BACKEND,
    PARAMETERS,
    REPLAY_ROWS,
    GameConfig,
    Parameter,
    RunSettings,
)
from flyball.app.core import HEURISTIC, FlyballError, load_plugin

BACKENDS = "flyball.backends"
"""Group of entry points that are backends."""

JOBS = ("initialise", "play", "inspect", "train", "match", "distribute")
"""Fields of a backend that name jobs."""


class UnusableBackend(FlyballError):
    """Unknown backend, or one that cannot describe a configuration."""


@dataclass(frozen=True, slots=True)
class GameInfo:
    """A backend's description of a configuration.

    Attributes:
        rules_version: names the rules and their implementation; shards of other rules are not mixed.
        players: number of seats.
        bots: names of the players other than models that it can play: built-in ones, and the configuration's own.
        knobs: parameters that its jobs understand; the feedback changes no others.
        replay_rows: rows of earlier trainings that its trainings also learn from unless the configuration says how
            many; None if they learn from fresh rows alone.
        dealt: cards, dice or hidden moves make games differ, so that evaluations need no random openings.
    """

    rules_version: str
    players: int
    bots: tuple[str, ...]
    knobs: frozenset[Parameter]
    replay_rows: int | None = None
    dealt: bool = False


@dataclass(frozen=True, slots=True)
class Backend:
    """A way to make and play models.

    See the module's docstring for the jobs.

    Attributes:
        name: for people.
        describe: describes a configuration. Raises ``FlyballError`` for one that cannot be played.
        initialise: the job that makes a configuration's first model, 'package.module:function'.
        play: the job that plays games and stores their rows as a shard.
        inspect: the job that judges a shard.
        train: the job that makes a model of another one and shards.
        match: the job that plays a batch of games of a model against an opponent.
        distribute: the job that verifies a model and deletes superseded ones.
    """

    name: str
    describe: Callable[[GameConfig], GameInfo]
    initialise: str
    play: str
    inspect: str
    train: str
    match: str
    distribute: str


def _describe_network(config: GameConfig) -> GameInfo:
    from flyball.app.games import bots_of, open_table  # imported late, because most processes don't need OpenSpiel

    game, names = open_table(config, slots=0).spec, bots_of(config)
    bots = dict.fromkeys((*names, HEURISTIC) if game.heuristic else names)
    return GameInfo(game.rules_version, game.players, tuple(bots), frozenset(PARAMETERS), dealt=game.dealt)


POLICY_GRADIENT = Backend(
    name=DEFAULT_BACKEND,
    describe=_describe_network,
    initialise="flyball.app.learning.jobs:initialise",
    play="flyball.app.play.selfplay:play",
    inspect="flyball.app.play.inspection:inspect",
    train="flyball.app.learning.jobs:train",
    match="flyball.app.play.matches:batch",
    distribute="flyball.app.store.checkpoints:distribute",
)
"""An actor-critic network that learns by proximal policy optimisation."""


def _describe_search(config: GameConfig) -> GameInfo:
    from flyball.app.games import open_table
    from flyball.app.play.search import check_searchable

    check_searchable(config, open_table(config, slots=0).spec)
    return replace(_describe_network(config), replay_rows=REPLAY_ROWS)


SEARCH = replace(
    POLICY_GRADIENT,
    name="search",
    describe=_describe_search,
    play="flyball.app.play.selfplay:play_by_search",
    train="flyball.app.learning.search_training:train",
)
"""A network that learns what its own tree searches find: Gumbel AlphaZero."""


def _describe_language(config: GameConfig) -> GameInfo:
    from flyball.app.language.base_files import check_settings
    from flyball.app.language.packages import require_packages
    from flyball.app.language.text_games import BASE_MODEL, open_text_table

    require_packages()
    game = open_text_table(config, slots=0).spec
    check_settings(config, game)
    return GameInfo(game.rules_version, game.players, (*game.bots, BASE_MODEL), frozenset(PARAMETERS))


LANGUAGE = Backend(
    name=LANGUAGE_BACKEND,
    describe=_describe_language,
    initialise="flyball.app.language.jobs:initialise",
    play="flyball.app.language.selfplay:play",
    inspect="flyball.app.language.inspection:inspect",
    train="flyball.app.language.jobs:train",
    match="flyball.app.language.selfplay:match",
    distribute="flyball.app.store.checkpoints:distribute",
)
"""A language model's low-rank adapter, which plays text games. It learns by GRPO."""


def _describe_external(config: GameConfig) -> GameInfo:
    return GameInfo(config.game, config.players, config.builtins, frozenset(PARAMETERS), replay_rows=config.replay_rows)


EXTERNAL = Backend(
    name=EXTERNAL_BACKEND,
    describe=_describe_external,
    initialise="flyball.app.participation.jobs:initialise",
    play="flyball.app.participation.jobs:play",
    inspect="flyball.app.participation.jobs:inspect",
    train="flyball.app.participation.jobs:train",
    match="flyball.app.participation.jobs:match",
    distribute="flyball.app.participation.jobs:distribute",
)
"""Anything that participants play, train and evaluate elsewhere (ADR-038)."""

OURS = {backend.name: backend for backend in (POLICY_GRADIENT, SEARCH, LANGUAGE, EXTERNAL)}


def backend_of(config: GameConfig) -> Backend:
    """Return a configuration's backend. Raises ``UnknownPlugin`` or ``UnusableBackend``."""
    return _backend(config.backend)


@cache
def _backend(name: str) -> Backend:
    backend = OURS.get(name) or load_plugin(BACKENDS, name, OURS)
    if not isinstance(backend, Backend):
        raise UnusableBackend(
            f"{name!r} is a {type(backend).__name__}, not a backend.",
            hint="Name an object of flyball.app.backends.Backend.",
        )
    return backend


def describe(config: GameConfig) -> GameInfo:
    """Return a backend's description of its configuration. Raises ``FlyballError``."""
    backend = backend_of(config)
    try:
        info = backend.describe(config)
    except FlyballError:
        raise
    except Exception as error:  # a function of the user's may raise anything
        raise UnusableBackend(
            f"The backend {backend.name} does not describe {config.key}: {type(error).__name__}: {error}.",
            hint="Its `describe` takes a GameConfig and returns a GameInfo.",
        ) from error
    if not isinstance(info, GameInfo):
        raise UnusableBackend(
            f"The backend {backend.name} describes {config.key} by a {type(info).__name__}.",
            hint="Its `describe` takes a GameConfig and returns a GameInfo.",
        )
    return info


def understood(settings: RunSettings) -> RunSettings:
    """Return settings without values that a configuration's backend does not understand.

    Only ``knobs`` and ``replay_rows`` are concerned. Raises ``FlyballError``.
    """
    return settings.replace(configs=tuple(map(_understood, settings.configs)))


def _understood(config: GameConfig) -> GameConfig:
    info = describe(config)
    replay_rows = info.replay_rows if config.replay_rows is None else config.replay_rows
    return config.replace(
        knobs=tuple(knob for knob in config.knobs if knob in info.knobs),
        replay_rows=None if info.replay_rows is None else replay_rows,
    )


def reason_fixed(parameter: Parameter, config: GameConfig) -> str | None:
    """Return why the feedback does not change a recorded configuration's parameter; None if it may change it."""
    if parameter in config.knobs:
        return None
    try:
        knobs = describe(config).knobs
    except FlyballError:
        return "fixed"
    if parameter not in knobs:
        return f"fixed: backend {config.backend} does not understand it"
    return f"fixed by games.{config.key}.knobs"
