"""Ids, statistics, seeds, clock and errors, on which everything else builds."""

from app.core.backoff import backoff
from app.core.clock import SECOND_US, SECONDS_PER_HOUR, Clock
from app.core.errors import BadUsage, Finding, FlyballError, UnusableFile, located, reading, writing
from app.core.foreign_json import parse_json
from app.core.ids import (
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
    is_broker,
    is_judge,
    is_model,
    is_observer,
    split_search,
)
from app.core.jobs import Job, JsonObject, Report
from app.core.network_shape import NetworkShape
from app.core.plugins import UnknownPlugin, allow_modules_in, import_modules, load_plugin, misspelling_hint, misspelt
from app.core.rng import Wheel, derive_point, derive_seed, lineups
from app.core.statistics import (
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
from app.core.suggestions import nearest, suggest
from app.core.tabular import Record, Tabular, figure_text, flat, named
