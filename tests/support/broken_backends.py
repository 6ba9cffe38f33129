"""Backends that break their contract in one way each."""

from dataclasses import replace
from itertools import count
from typing import Any

import tabular_backend
from tabular_backend import TABULAR

from flyball.app.backends import GameInfo
from flyball.app.engine import JsonObject, Report

NUMBERS = count()

NO_BACKEND = {"name": "tabular"}


def describe(**changes: Any) -> Any:
    """Return a description that differs from the truth."""

    def described(config: Any) -> GameInfo:
        return replace(TABULAR.describe(config), **changes)

    return described


def undescribed(config: Any) -> GameInfo:
    """Describe nothing."""
    raise KeyError(config.key)


def vanishing(spec: JsonObject, report: Report) -> JsonObject:
    """Name a model that is not in the store."""
    return tabular_backend.initialise(spec, report) | {"model": "0" * 64}


def unseeded(spec: JsonObject, report: Report) -> JsonObject:
    """Play other games at each call."""
    return tabular_backend.play(spec | {"seed": next(NUMBERS)}, report)


def same(spec: JsonObject, report: Report) -> JsonObject:
    """Play the same games for every seed."""
    return tabular_backend.play(spec | {"seed": 1}, report)


def refused(spec: JsonObject, report: Report) -> JsonObject:
    """Find a failure in every shard."""
    return {"checked": 1, "failures": ["game 0: two moves in a row"], "score": 0.5, "components": {}}


def unmeasured(spec: JsonObject, report: Report) -> JsonObject:
    """Return no metrics."""
    return tabular_backend.train(spec, report) | {"metrics": None}


def worded(spec: JsonObject, report: Report) -> JsonObject:
    """Return a metric that is no number."""
    return tabular_backend.train(spec, report) | {"metrics": {"td_error": "low"}}


def failing(spec: JsonObject, report: Report) -> JsonObject:
    """Fail."""
    raise ValueError("nothing is learned")


def short(spec: JsonObject, report: Report) -> JsonObject:
    """Forget the games' results."""
    return {"seconds": 0.0}


def hoarding(spec: JsonObject, report: Report) -> JsonObject:
    """Delete nothing."""
    return {"model": spec["model"]}


CROWDED = replace(TABULAR, describe=describe(players=3))
BOTLESS = replace(TABULAR, describe=describe(bots=()))
OTHER_RULES = replace(TABULAR, describe=describe(rules_version="older"))
CLAIMING = replace(TABULAR, describe=describe(knobs=frozenset({"epochs"})))
UNDESCRIBED = replace(TABULAR, describe=undescribed)
VANISHING = replace(TABULAR, initialise="broken_backends:vanishing")
NOWHERE = replace(TABULAR, initialise="broken_backends:nowhere")
UNSEEDED = replace(TABULAR, play="broken_backends:unseeded")
SAME = replace(TABULAR, play="broken_backends:same")
REFUSED = replace(TABULAR, inspect="broken_backends:refused")
UNMEASURED = replace(TABULAR, train="broken_backends:unmeasured")
WORDED = replace(TABULAR, train="broken_backends:worded")
FAILING = replace(TABULAR, train="broken_backends:failing")
SHORT = replace(TABULAR, match="broken_backends:short")
HOARDING = replace(TABULAR, distribute="broken_backends:hoarding")
