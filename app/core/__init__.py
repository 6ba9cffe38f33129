"""Ids, units, seeds, clock and errors: what everything else is said in."""

from app.core.chance import Wheel, derive_point, derive_points, lineups
from app.core.clock import Clock
from app.core.errors import FlyballError, UnusableFile, reading, writing
from app.core.ids import ANCHOR, HEURISTIC, NEWEST_ANCHOR, RANDOM, ConfigKey, EventId, ModelHash, ShardKey, derive_id
from app.core.interpreter import python_module
from app.core.seeds import derive_seed
from app.core.statistics import (
    ELO_SCALE,
    LEAST_P,
    PLAYERS_OF,
    Verdict,
    expected_score,
    gsprt_llr,
    p_text,
    rotation_outcomes,
    sprt_bounds,
    sprt_verdict,
)
from app.core.units import Elo, EloPerHour, Rate, wilson_interval

__all__ = [
    "ANCHOR",
    "ELO_SCALE",
    "HEURISTIC",
    "LEAST_P",
    "NEWEST_ANCHOR",
    "PLAYERS_OF",
    "RANDOM",
    "Clock",
    "ConfigKey",
    "Elo",
    "EloPerHour",
    "EventId",
    "FlyballError",
    "ModelHash",
    "Rate",
    "ShardKey",
    "UnusableFile",
    "Verdict",
    "Wheel",
    "derive_id",
    "derive_point",
    "derive_points",
    "derive_seed",
    "expected_score",
    "gsprt_llr",
    "lineups",
    "p_text",
    "python_module",
    "reading",
    "rotation_outcomes",
    "sprt_bounds",
    "sprt_verdict",
    "wilson_interval",
    "writing",
]
