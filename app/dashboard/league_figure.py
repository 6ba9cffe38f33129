"""The figure of a league: ratings over training steps, and who beats whom."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from app.dashboard.league import LeagueView
from app.dashboard.summary import short
from app.telemetry import drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = (12.0, 5.0)


def draw_league(view: LeagueView, title: str, path: Path) -> None:
    """Draw Elo over steps (hero, baselines, past best) and the members' scores against each other.

    Raises as ``app.telemetry.drawn`` does.
    """
    with drawn(path, INCHES) as figure:
        figure.suptitle(title)
        curves, heat = figure.subplots(1, 2)
        _curves(curves, view)
        _matrix(heat, view)


def _curves(axes: "Axes", view: LeagueView) -> None:
    rated = sorted(view.rated.values())
    if rated:
        steps, elo, stderr = (np.array(column) for column in zip(*rated, strict=True))
        axes.plot(steps, elo, ".", markersize=3, label="hero")
        axes.fill_between(steps, elo - 1.96 * stderr, elo + 1.96 * stderr, alpha=0.2, label="95%")
        axes.plot(steps, np.maximum.accumulate(elo), label="past best")
    for number, agent in enumerate(view.league.baselines):
        if agent.elo is not None:
            axes.axhline(agent.elo, linestyle="--", linewidth=1, color=f"C{number + 2}", label=agent.id)
    axes.set(xlabel="training step", ylabel="Elo over the random bot")
    axes.legend()


def _matrix(axes: "Axes", view: LeagueView) -> None:
    members = view.members()
    names = [member["agent"] for member in members]
    scores = np.array(view.matrix(names), dtype=np.float64).reshape(len(names), len(names))
    image = axes.imshow(np.ma.masked_invalid(scores), vmin=0, vmax=1, cmap="RdBu")
    labels = [_label(member) for member in members]
    axes.set_xticks(range(len(names)), labels, rotation=90)
    axes.set_yticks(range(len(names)), labels)
    axes.set(title="score of the row against the column")
    axes.figure.colorbar(image, ax=axes, shrink=0.8)


def _label(member: dict[str, Any]) -> str:
    name: str = member["agent"]
    return name if member["step"] is None else f"{short(name)} {member['step']}"
