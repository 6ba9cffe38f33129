"""A run's final report in Markdown, with a figure of its curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flyball.app.core import p_text, student
from flyball.app.core.statistics import Z_95
from flyball.app.games import TableSpec
from flyball.app.telemetry import drawn
from flyball.app.train.iteration import Evaluation, outcome_text
from flyball.app.train.sinks import markdown_table, settings_text
from flyball.app.train.state import RunHead, RunState

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REPORT, CURVES = "report.md", "curves.svg"

_LEGEND = (
    "On fresh deals, the policy in every seat of each, copies of the bot in all others. The outcome of equals is 0; "
    "p is that of being the bot's equal."
)
_UNITS = (
    " Outcomes are in the game's own units. Those in the log, in JSON and in settings are from -1 to 1, and 1 is {:g} "
    "units."
)
_INCHES = (11.0, 9.0)
_PANELS = {
    "policy loss": ("policy_loss",),
    "value loss": ("value_loss",),
    "entropy, nats": ("entropy",),
    "KL divergence, nats, and share clipped": ("kl_div", "clip_fraction"),
    "explained variance of the critic": ("explained_variance",),
    "divergence from the searches, nats": ("divergence",),
    "replayed rows": ("replayed_rows",),
}
"""Columns of the log by the title of their panel. A backend has at most five of these."""


def p_value(evaluation: Evaluation, players: int) -> float:
    """Return the two-sided p-value of a mean outcome of 0.

    The test is Student's t over rotations. A mean of 0 is that of the bot's equal. In a rotation of ``players`` games
    the policy plays one deal in every seat, so luck of the deal cancels.
    """
    return student(evaluation.outcome, evaluation.stderr, evaluation.games // players - 1)[1]


def summary_text(
    head: RunHead,
    state: RunState,
    finals: Sequence[Evaluation] | None,
    spec: TableSpec,
    rows: Sequence[Mapping[str, str]],
) -> str:
    """Return a run's summary in Markdown: its course, by its log's ``rows`` if there are any, and its best policy.

    ``finals`` is None before the end of the run. ``spec`` describes the game.
    """
    course = f"{state.iteration} iterations, {state.games:,} games"
    if rows:
        made, wall, processor = (
            sum(float(row[name] or 0) for row in rows) for name in ("rows", "seconds", "processor_seconds")
        )
        course += f", {made:,.0f} decisions, {wall:,.0f} s ({processor:,.0f} s of processor)"
    if state.recoveries:
        course += f". {state.recoveries} updates diverged and were discarded"
    best, evaluation, scale = state.best, state.best.evaluation, spec.outcome_scale
    outcome = f"{outcome_text(evaluation['outcome'], scale)} ± {outcome_text(evaluation['stderr'], scale, '')}"
    points = "" if evaluation["points"] is None else f", {evaluation['points']:.2f} points a hand"
    parts = [
        f"# {head.config}, seed {head.seed}",
        f"{course}.",
        "## The best policy",
        (
            f"Iteration {best.iteration}, model `{best.model}`. It was chosen for outcome {outcome}{points} in "
            f"{evaluation['games']} games against {evaluation['opponent']}; the best of many measurements is better "
            "than the policy."
        ),
    ]
    if finals is None:
        parts.append("The run has not ended; its final evaluation and its curves are still to come.")
    else:
        parts.append(_table(finals, spec) if finals else "No final evaluation was asked for.")
    return "\n\n".join(parts) + "\n"


def write_report(folder: Path, head: RunHead, summary: str, *, curves: bool) -> None:
    """Write the report into the run's folder: the summary, the curves if there are any, and the settings."""
    parts = [summary, *([f"## Curves\n\n![curves]({CURVES})\n"] if curves else [])]
    parts.append(f"## Settings\n\n{settings_text(head.settings.model_dump(mode='json'))}\n")
    (folder / REPORT).write_text("\n".join(parts))


def draw_curves(folder: Path, rows: Sequence[Mapping[str, str]], scale: float) -> bool:
    """Draw the curves of a log's rows into ``folder``; return False for fewer than two.

    An outcome of 1 is ``scale`` of the game's own units. Raises ``NoPlots``.
    """
    if len(rows) < 2:
        return False
    with drawn(folder / CURVES, _INCHES) as figure:
        measured = {column for row in rows for column, value in row.items() if value}
        titles = {title: columns for title, columns in _PANELS.items() if measured.intersection(columns)}
        first, *others = figure.subplots(3, 2).flat
        _evaluations(first, rows, scale)
        for axes in others[len(titles) :]:
            axes.remove()
        for (title, columns), axes in zip(titles.items(), others, strict=False):
            for column in columns:
                axes.plot(_column(rows, "iteration"), _column(rows, column), linewidth=0.8, label=column)
            axes.set(title=title, xlabel="iteration")
            if len(columns) > 1:
                axes.legend()
    return True


def _table(finals: Sequence[Evaluation], spec: TableSpec) -> str:
    counts_points = any(evaluation.points is not None for evaluation in finals)
    names = ["against", "games", "outcome, 95%", "p", "win share"]
    names += ["points a hand", "moons"] if counts_points else []
    rows = []
    for evaluation in finals:
        reach = Z_95 * evaluation.stderr
        bounds = (evaluation.outcome, evaluation.outcome - reach, evaluation.outcome + reach)
        outcome, lower, upper = (outcome_text(bound, spec.outcome_scale) for bound in bounds)
        cells = [
            evaluation.opponent,
            f"{evaluation.games:,}",
            f"{outcome} [{lower}, {upper}]",
            p_text(p_value(evaluation, spec.players)),
            f"{evaluation.win_share:.3f}",
        ]
        if evaluation.points is not None and evaluation.moon_rate is not None:
            cells += [f"{evaluation.points:.2f}", f"{evaluation.moon_rate:.2%}"]
        rows.append(cells)
    units = "" if spec.outcome_scale == 1 else _UNITS.format(spec.outcome_scale)
    return f"{markdown_table(names, rows)}\n\n{_LEGEND}{units}"


def _evaluations(axes: "Axes", rows: Sequence[Mapping[str, str]], scale: float) -> None:
    measured = [row for row in rows if row["eval_outcome"]]
    numbers, means, errors = (_column(measured, name) for name in ("iteration", "eval_outcome", "eval_stderr"))
    axes.errorbar(
        numbers, means * scale, yerr=Z_95 * errors * scale, fmt=".-", linewidth=0.8, elinewidth=0.5, capsize=2
    )
    best = [row for row in measured if row["checkpoint"] == "true"]
    axes.plot(_column(best, "iteration"), _column(best, "eval_outcome") * scale, "*", label="best so far")
    axes.axhline(0, color="grey", linewidth=0.5)
    against = ", ".join(dict.fromkeys(row["eval_opponent"] for row in measured))
    axes.set(title=f"outcome against {against}, 95%", xlabel="iteration")
    axes.legend()


def _column(rows: Sequence[Mapping[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) if row[name] else np.nan for row in rows])
