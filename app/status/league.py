"""The leagues of a run: members, ratings, games, and opponents in self-play."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flyball.app.config import ForeignSettings, RunSettings
from flyball.app.core import Elo, MeanOutcome, Record, Tabular, figure_text, flat, named
from flyball.app.events import (
    AgentRating,
    EloUpdated,
    EvaluationCompleted,
    Event,
    MatchmakingUpdated,
    ModelPromoted,
    ModelRolledBack,
    OpponentPick,
    OpponentSampled,
    Payload,
    RunConfigured,
    SampledOpponent,
)
from flyball.app.league.audit import Cycle, find_cycle
from flyball.app.league.league import LEAGUE_READS, Agent, League, fold_league
from flyball.app.league.ratings import Estimate
from flyball.app.league.totals import PairTotals, total, totals_of
from flyball.app.status.configs import ConfigRow, Progress, fold_config
from flyball.app.status.summary import chances, short, show_elo
from flyball.app.telemetry import drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = (12.0, 5.0)
LEAGUES_READ: frozenset[type[Payload]] = LEAGUE_READS | {MatchmakingUpdated, OpponentSampled, RunConfigured}
"""Payload types that leagues are folded from."""


@dataclass(slots=True, repr=False)
class LeagueView(Tabular):
    """One configuration's league, up to the last event read. ``to_frame()`` has a row for each member.

    ``fold_league`` and ``fold_config`` fold ``league`` and ``config``. The other attributes hold what those two do not:
    the games of all models, because a league forgets retired ones, and what is only for display.

    Attributes:
        league: members and their games, as ``LeagueKeeper`` folds them.
        pairs: totals of all games except gates'.
        rated: rated models, the latest last: training step, latest published Elo, and its standard error.
        promoted: the promoted models, in order.
        picks: the latest choice of opponents in self-play, with reasons.
        met: number of self-play games by category of opponent.
        config: the configuration's status row, folded from the same events.
        outcomes: an agent's mean outcome in its latest match against another, where outcomes are graded.
    """

    league: League = field(default_factory=League)
    pairs: tuple[PairTotals, ...] = ()
    rated: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    promoted: list[str] = field(default_factory=list)
    picks: tuple[OpponentPick, ...] = ()
    met: Counter[str] = field(default_factory=Counter)
    config: ConfigRow | None = None
    outcomes: dict[tuple[str, str], MeanOutcome] = field(default_factory=dict)

    brief_columns: ClassVar = {
        "members": (
            *("agent", "roles", "champion", "step", "elo", "elo_lower", "elo_upper", "games", "champion_score", "met"),
            "parent",
        )
    }

    def take(self, event: Event[Any], settings: RunSettings) -> None:
        """Fold one event about the configuration."""
        key, data = event.subject, event.data
        config = self.config or ConfigRow(key=key, since_us=event.recorded_us)
        if isinstance(data, ModelPromoted | ModelRolledBack) and not config.lineage.changes_current(data):
            return
        self.config = fold_config(config, event)
        league = self.league.with_baselines(settings.config(key).builtins)
        self.league = fold_league(league, event, settings.league.admission)
        match data:
            case EvaluationCompleted(purpose=purpose) if purpose != "gate":
                if purpose == "rating":
                    self.rated.pop(data.model, None)
                    self.rated[data.model] = (data.step, data.elo, data.elo_stderr)
                self._count(data)
            case EloUpdated(ratings=ratings):
                self._rate(ratings)
            case ModelPromoted(model=model):
                self.promoted.append(model)
            case MatchmakingUpdated(picks=picks):
                self.picks = picks
            case OpponentSampled(opponents=opponents):
                self._meet(opponents)

    def _count(self, data: EvaluationCompleted) -> None:
        """Add an evaluation's games."""
        self.pairs = total((*self.pairs, *totals_of(data.model, data.results)))
        for match in data.results:
            if outcome := match.graded_outcome:
                self.outcomes[data.model, match.player] = outcome
                self.outcomes[match.player, data.model] = outcome.others(match.players)

    def _meet(self, opponents: Iterable[SampledOpponent]) -> None:
        for opponent in opponents:
            self.met[opponent.category] += opponent.games

    def _rate(self, ratings: Iterable[AgentRating]) -> None:
        for rating in ratings:
            if rating.agent in self.rated and rating.elo_stderr is not None:
                self.rated[rating.agent] = (self.rated[rating.agent][0], rating.elo, rating.elo_stderr)

    @property
    def progress(self) -> Progress | None:
        """The latest rated model's score against an earlier champion."""
        return self.config.progress if self.config else None

    def cycle(self) -> Cycle | None:
        """Find three agents that beat each other in a cycle, beyond chance."""
        return find_cycle(self.pairs)

    def row(self, agent: Agent) -> dict[str, Any]:
        """Return what is known of a member, for tables and JSON."""
        champion = self.league.champion
        games = None if champion in (None, agent.id) else self.league.between(champion or "", agent.id)
        return {
            "agent": agent.id,
            "kind": agent.kind,
            "roles": list(agent.roles),
            "champion": agent.id == champion,
            "step": agent.step,
            "parent": agent.parent,
            "elo": agent.elo,
            "elo_stderr": agent.elo_stderr,
            "bound": agent.bound,
            "interval": _interval(agent),
            "games": sum(pair.games for pair in self.pairs if agent.id in (pair.first, pair.second)),
            "champion_score": games and games.mean,
            "outcome": self.outcomes.get((agent.id, champion or "")),
            "met": chances(self.picks).get(agent.id, 0.0),
        }

    def agents(self) -> list[Agent]:
        """Return the active members, baselines first. A rated champion that is no member comes last."""
        agents = list(self.league.active)
        champion = self.league.champion
        if champion is not None and champion not in self.league.agents and champion in self.rated:
            step, elo, stderr = self.rated[champion]
            agents.append(
                Agent(
                    id=champion,
                    kind="checkpoint",
                    step=step,
                    elo=Elo(elo),
                    elo_stderr=stderr,
                    parent=self._member_before(champion),
                )
            )
        return agents

    def _member_before(self, champion: str) -> str | None:
        """Return the latest champion before this one that is a member."""
        before = [one.model for one in self.config.lineage.champions if one.model != champion] if self.config else []
        return next((model for model in reversed(before) if model in self.league.agents), None)

    def members(self) -> list[dict[str, Any]]:
        """Return rows of ``agents``."""
        return [self.row(agent) for agent in self.agents()]

    def matrix(self, agents: Iterable[str]) -> list[list[float | None]]:
        """Return mean scores of agents (rows) against each other (columns). ``None`` for pairs without games."""
        names = list(agents)
        scores = {(pair.first, pair.second): pair.mean for pair in self.pairs}
        scores |= {(second, first): 1 - score for (first, second), score in scores.items()}
        return [[scores.get((name, other)) for other in names] for name in names]

    def headline(self) -> str:
        """See ``Tabular``."""
        rated = [(agent.elo, agent) for agent in self.league.active if agent.elo is not None]
        best = [
            f"{figure_text(agent.id)} {show_elo(elo, agent.elo_stderr)}"
            for elo, agent in sorted(rated, key=itemgetter(0), reverse=True)
        ]
        key = f" of {self.config.key}" if self.config else ""
        return f"league{key}, {len(self.league.active)} members: Elo {named(best) or 'not known yet'}"

    def tables(self) -> dict[str, Sequence[Record]]:
        """See ``Tabular``. ``pairs`` has the games of two members each, and the first one's mean score."""
        return {
            "members": [_columns(member) for member in self.members()],
            "pairs": [
                {"first": pair.first, "second": pair.second, "games": pair.games, "score": pair.mean}
                for pair in self.pairs
            ],
        }

    def json(self) -> dict[str, Any]:
        """Return the league as JSON."""
        members, cycle = self.members(), self.cycle()
        return {
            "members": [member | {"outcome": _json(member["outcome"])} for member in members],
            "matchmaking": [pick.model_dump(mode="json") for pick in self.picks],
            "met_games": dict(self.met),
            "progress": self.progress and self.progress.to_builtins(),
            "matrix": self.matrix(member["agent"] for member in members),
            "cycle": cycle and cycle._asdict(),
        }


def _columns(member: Mapping[str, Any]) -> Record:
    """Return a member's row as columns."""
    lower, upper = member["interval"] or (None, None)
    values = flat({**member, "outcome": _json(member["outcome"])})
    return values | {"roles": ", ".join(member["roles"]), "elo_lower": lower, "elo_upper": upper}


def _interval(agent: Agent) -> tuple[Elo, Elo] | None:
    """Return the 95% interval of a member's rating, if it has a rating."""
    if agent.elo is None or agent.bound:
        return None
    return Estimate(agent.elo, agent.elo_stderr or 0.0).interval()


def _json(outcome: MeanOutcome | None) -> dict[str, Any] | None:
    return None if outcome is None else outcome.model_dump()


class Leagues:
    """The leagues of all configurations, folded from events of ``LEAGUES_READ``."""

    def __init__(self) -> None:
        self.views: dict[str, LeagueView] = {}
        self._settings = RunSettings()

    def take(self, event: Event[Any]) -> None:
        """Fold the next event."""
        if isinstance(event.data, RunConfigured):
            with suppress(ForeignSettings):
                self._settings = RunSettings.recorded(event.data.settings, event.source)
        elif event.subject in self._settings:
            self.views.setdefault(event.subject, LeagueView()).take(event, self._settings)


def read_leagues(events: Iterable[Event[Any]]) -> dict[str, LeagueView]:
    """Fold a journal's events of ``LEAGUES_READ`` into the leagues of all configurations."""
    leagues = Leagues()
    for event in events:
        leagues.take(event)
    return leagues.views


def draw_league(view: LeagueView, title: str, path: Path) -> None:
    """Draw Elo over training steps, and the members' mutual scores.

    Raises the errors of ``flyball.app.telemetry.drawn``.
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
    labels = [row["agent"] if row["step"] is None else f"{short(row['agent'])} {row['step']}" for row in members]
    axes.set_xticks(range(len(names)), labels, rotation=90)
    axes.set_yticks(range(len(names)), labels)
    axes.set(title="score of the row against the column")
    axes.figure.colorbar(image, ax=axes, shrink=0.8)
