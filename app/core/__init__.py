"""Ids, statistics, seeds, clock and errors, on which everything else builds."""

from flyball.app.core.backoff import backoff
from flyball.app.core.clock import SECOND_US, SECONDS_PER_HOUR, Clock
from flyball.app.core.errors import BadUsage, Finding, FlyballError, UnusableFile, located, reading, writing
from flyball.app.core.foreign_json import parse_json
from flyball.app.core.ids import (
    ANCHOR,
    BROKER,
    HASH_DIGITS,
    HEURISTIC,
    MCTS,
    NAME_LENGTH,
    NEWEST_ANCHOR,
    OBSERVER,
    RANDOM,
    SOLVER,
    BotName,
    ConfigKey,
    DaemonName,
    EventId,
    ModelHash,
    Name,
    NodeName,
    PlayerName,
    ShardKey,
    derive_id,
    hashes_in,
    is_broker,
    is_judge,
    is_model,
    is_observer,
    split_search,
)
from flyball.app.core.jobs import Job, JsonObject, Report
from flyball.app.core.network_shape import NetworkShape
from flyball.app.core.plugins import (
    UnknownPlugin,
    allow_modules_in,
    current_name,
    import_modules,
    load_plugin,
    misspelling_hint,
    misspelt,
)
from flyball.app.core.rng import Wheel, derive_point, derive_seed, lineups
from flyball.app.core.statistics import (
    ELO_SCALE,
    LEAST_P,
    PLAYERS_OF,
    Elo,
    EloPerHour,
    GradedScores,
    MeanOutcome,
    Rate,
    elo_lead,
    expected_score,
    gsprt_llr,
    p_text,
    rotation_outcomes,
    sprt_bounds,
    sprt_verdict,
    student,
    wilson_interval,
)
from flyball.app.core.suggestions import nearest, suggest
from flyball.app.core.tabular import Record, Tabular, figure_text, flat, named
