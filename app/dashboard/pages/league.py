"""League: members, their mutual scores, lineage, and self-play's opponents."""

from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flyball.app.dashboard.layout import Page, feed_of, played_configs, render, to_config
from flyball.app.league.league import Agent
from flyball.app.status.league import LeagueView
from flyball.app.status.summary import chances

WIDTH, HEIGHT, MARGIN = 720.0, 260.0, 34.0
"""Size of the lineage's drawing, in its own units."""

ROOM_ELO = 10.0
"""Elo above the highest and below the lowest checkpoint of the drawing."""

SHADES = 10
"""Steps of colour from a lost pairing to a won one."""


class Cell(NamedTuple):
    """A pairing of the heat map: the row's mean score in [0, 1] and its shade; both ``None`` without games."""

    score: float | None
    shade: int | None


class Node(NamedTuple):
    """A member in the lineage's drawing, at (x, y). ``parent`` is its parent's point if that is drawn too."""

    agent: Agent
    x: float
    y: float
    parent: tuple[float, float] | None


class Lineage(NamedTuple):
    """The lineage's drawing: training steps to the right, Elo upwards."""

    nodes: tuple[Node, ...]
    ticks: tuple[tuple[float, float], ...]
    steps: tuple[tuple[float, int], ...]


def heat_map(view: LeagueView, members: list[dict[str, Any]]) -> list[list[Cell]]:
    """Return the members' scores against each other, as rows of cells."""
    matrix = view.matrix(member["agent"] for member in members)
    return [[Cell(score, None if score is None else round(score * SHADES)) for score in row] for row in matrix]


def lineage_of(view: LeagueView) -> Lineage | None:
    """Return the drawing of the rated checkpoints and their parents. ``None`` before any checkpoint is rated."""
    agents = {agent.id: agent for agent in view.agents() if agent.step is not None and agent.elo is not None}
    for agent in list(agents.values()):  # add retired parents, because otherwise their children have no line to them
        parent = view.league.agents.get(agent.parent or "")
        if parent and parent.step is not None and parent.elo is not None:
            agents.setdefault(parent.id, parent)
    if not agents:
        return None
    most_step = max(1, *(agent.step or 0 for agent in agents.values()))
    elos = [float(agent.elo or 0) for agent in agents.values()]
    low, high = min(elos) - ROOM_ELO, max(elos) + ROOM_ELO

    def point(agent: Agent) -> tuple[float, float]:
        x = MARGIN * 1.6 + (WIDTH - 2.4 * MARGIN) * (agent.step or 0) / most_step
        y = HEIGHT - MARGIN - (HEIGHT - 1.7 * MARGIN) * (float(agent.elo or 0) - low) / (high - low)
        return round(x, 1), round(y, 1)

    steps = {0, most_step // 2, most_step}
    at = {agent.id: point(agent) for agent in agents.values()}
    nodes = tuple(Node(agent, *at[agent.id], at.get(agent.parent or "")) for agent in agents.values())
    return Lineage(
        nodes,
        tuple((HEIGHT - MARGIN - (HEIGHT - 1.7 * MARGIN) * part, low + part * (high - low)) for part in (0, 0.5, 1)),
        tuple((MARGIN * 1.6 + (WIDTH - 2.4 * MARGIN) * step / most_step, step) for step in sorted(steps)),
    )


def league(request: Request) -> Response:
    """Show the page of one configuration."""
    return render(request, "league.html", **_values(request))


def tables(request: Request) -> Response:
    """Show the tables, which the page refreshes."""
    return render(request, "league_tables.html", **_values(request))


def _values(request: Request) -> dict[str, Any]:
    key = request.path_params["key"]
    with feed_of(request).reading() as model:
        keys = list(played_configs(request))
        view = model.leagues.views.get(key)
        if view is None:
            return {"key": key, "keys": keys, "view": None}
        members = sorted(view.members(), key=lambda row: (row["elo"] is None, -(row["elo"] or 0.0)))
        reasons = [(pick.agent, pick.category, pick.probability) for pick in view.picks]
        return {
            "key": key,
            "keys": keys,
            "view": view,
            "members": members,
            "cells": heat_map(view, members),
            "lineage": lineage_of(view),
            "chances": chances(view.picks),
            "picks": sorted(reasons, key=lambda pick: -pick[2]),
            "met": view.met.most_common(),
            "cycle": view.cycle(),
            "size": (WIDTH, HEIGHT),
        }


PAGE = Page(
    "/league",
    "League",
    (Route("/league", to_config), Route("/league/{key}", league), Route("/league/{key}/tables", tables)),
    keyed=True,
)
