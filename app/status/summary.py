"""One-line summaries of events and values, for people."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import floor, log10
from textwrap import shorten
from typing import Any, get_args

from rich.text import Text

from flyball.app.config import RunSettings
from flyball.app.controllers.emitters import emitter_of
from flyball.app.controllers.stall import stall_text
from flyball.app.controllers.watchdog import fixed_opponent
from flyball.app.core import HASH_DIGITS, MeanOutcome, Rate
from flyball.app.events import (
    CurriculumRebalanced,
    EvaluationCompleted,
    Event,
    ExplorationBoost,
    HyperparameterUpdated,
    Intensity,
    Kind,
    MatchmakingUpdated,
    MatchResult,
    ModelAdvised,
    ModelPromoted,
    ModelRolledBack,
    NodeQuarantined,
    NodeReleased,
    OpponentPick,
    Payload,
    PlateauDetected,
    PromotionRejected,
    QualityDegraded,
    QualityPenaltyApplied,
    RegressionDetected,
    RunConfigured,
    SelfplayComplete,
    SelfplayRequested,
    TrainingBlockedByQuality,
    TrainingCompleted,
    TrainingIntensityChanged,
    TrainingRequested,
    TrainingUnblocked,
)
from flyball.app.status.configs import Progress, games_repeat

UNKNOWN = "-"
"""Placeholder of an unknown value, which must not look like 0."""

LONG_TEXT = 60
LONG_REASON = 150
LEAST_CONTENT = 60
"""Characters of an event that a narrow terminal shows before it shows who decided."""

LONG_LIST = 4
MOST_WEIGHTS = 6
"""Weights of a CURRICULUM_REBALANCED that are shown; of more, the greatest and the least."""

IDENTIFIERS = frozenset({"request_id", "evaluation_id", "shard", "seed", "run_id"})
"""Fields left out of summaries."""

STYLES = {Kind.FACT: "cyan", Kind.REQUEST: "yellow", Kind.DECISION: "bold magenta"}


def short(identifier: str | None) -> str:
    """Return the beginning of a hash, long enough to distinguish it."""
    return identifier[:HASH_DIGITS] if identifier else "none"


def show_elo(elo: float | None, stderr: float | None) -> str:
    """Return a rating with its standard error; a dash when unknown."""
    return UNKNOWN if elo is None else f"{elo:+.0f} ± {stderr or 0:.0f}"


def show_rate(rate: Rate | None) -> str:
    """Return a proportion with its 95% interval and sample size. A dash when unknown."""
    if rate is None:
        return UNKNOWN
    return f"{rate.mean:.1%} [{rate.lower:.1%}, {rate.upper:.1%}] n={rate.n}"


def show_outcome(outcome: MeanOutcome | None) -> str:
    """Return a mean outcome with its 95% interval, in the game's own units; empty when unknown.

    The last digit is the second one of its standard error.
    """
    if outcome is None:
        return ""
    if outcome.lower is None or outcome.upper is None or not outcome.stderr:
        return f"{outcome.mean:+.3g}"
    digits = max(0, 1 - floor(log10(outcome.stderr)))
    return f"{outcome.mean:+.{digits}f} [{outcome.lower:+.{digits}f}, {outcome.upper:+.{digits}f}]"


def show_against(rate: Rate | None, outcome: MeanOutcome | None) -> str:
    """Return a score as ``show_rate`` does, after the mean outcome if there is one."""
    return ", ".join(filter(None, (show_outcome(outcome), show_rate(rate))))


def show_progress(progress: Progress | None) -> str:
    """Return the score against an earlier champion, and its age in loops. A dash when unknown."""
    if progress is None:
        return UNKNOWN
    score = progress.score
    interval = f"{score.mean:.0%} [{score.lower:.0%}, {score.upper:.0%}]"
    ago = "1 loop ago" if progress.loops == 1 else f"{progress.loops} loops ago"
    return ", ".join(filter(None, (show_outcome(progress.outcome), interval, ago)))


def show_age(seconds: float) -> str:
    """Return a duration in the largest unit that it contains twice. Seconds if there is no such unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def show_offset(microseconds: int) -> str:
    """Return a time after another event, negative before it: in seconds from 1 s up, otherwise in milliseconds."""
    tenths = round(microseconds / 100)  # of a millisecond
    return f"{tenths / 10_000:+,.1f} s" if abs(tenths) >= 10_000 else f"{tenths / 10:+.1f} ms"


def show_time(moment: datetime, precision: str = "seconds") -> str:
    """Return a date and time in UTC, as the final "Z" says."""
    return moment.astimezone(UTC).isoformat(sep=" ", timespec=precision).removesuffix("+00:00") + "Z"


def show_clock(moment: datetime) -> str:
    """Return a time of day in UTC; see ``show_time``."""
    return f"{moment.astimezone(UTC):%H:%M:%SZ}"


def chances(picks: Iterable[OpponentPick]) -> dict[str, float]:
    """Return each agent's probability as an opponent, the likeliest first. It is summed over the agent's picks."""
    shares: dict[str, float] = {}
    for pick in picks:
        shares[pick.agent] = shares.get(pick.agent, 0.0) + pick.probability
    return dict(sorted(shares.items(), key=lambda item: item[1], reverse=True))


ADVISES_ONLY = 'Advises only (mode = "advise"): nothing is asked of anybody, and verdicts on models are advice.'
"""Line about a run that only advises."""


def one_line(text: str) -> str:
    """Return a text in one line, without control characters. Otherwise a terminal would obey its escape sequences."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def event_text(event: Event[Any], settings: RunSettings | None = None, width: int | None = None) -> Text:
    """Return an event in one line: its name, configuration and content, and who decided it.

    Args:
        event: the event.
        settings: of the run; they name user-defined controllers, see ``emitter_of``.
        width: of the line, in characters. The content is cut so that the emitter fits too, if enough of it is left.
    """
    text = Text(event.data.event_name, STYLES[event.data.kind])
    if event.subject:
        text.append(f" {event.subject}", "blue")
    text.append(f"  {summarise(event.data)}", "default")
    by = show_emitter(event, settings)
    if width is not None and width - len(by) >= LEAST_CONTENT:
        text.truncate(width - len(by), overflow="ellipsis")
    return text.append(by, "dim")


def show_emitter(event: Event[Any], settings: RunSettings | None = None) -> str:
    """Return who decided an event, to follow its content; empty for what workers and hosts report."""
    by = emitter_of(event, settings)
    return f"  by {one_line(by)}" if by else ""


def summarise(data: Payload) -> str:
    """Return a payload's content in one line. Line breaks in its texts become blanks."""
    return one_line(SUMMARIES.get(type(data), _fields)(data))


def _selfplay(data: SelfplayComplete) -> str:
    shard = data.shard
    lasted = "" if data.seconds is None else f" in {data.seconds:.1f} s"
    return f"{shard.games} games, {shard.rows} rows with {short(shard.model)}{lasted} by {shard.worker or 'others'}"


def _selfplay_request(data: SelfplayRequested) -> str:
    probe, others = "probe: " if data.probe else "", {name for lineup in data.lineups for name in lineup.opponents}
    others -= {data.model}
    against = f" with {len(others)} other player{'s' if len(others) > 1 else ''}" if others else ""
    how = f"by {data.worker}, temperature {data.temperature:.3g}"
    return f"{probe}{data.games} games of {short(data.model)}{against} {how}"


def _degraded(data: QualityDegraded) -> str:
    return f"{data.worker}: {shorten(data.reason, LONG_REASON, placeholder='…')}"


def _training_request(data: TrainingRequested) -> str:
    if data.base_model is None:
        return "the initial model"
    rows = sum(shard.rows for shard in data.shards)
    late = sum(shard.rows for shard in data.shards if shard.model != data.base_model)
    of_others = f" ({late} by champions before)" if late else ""
    return f"from {short(data.base_model)}, step {data.step}, {rows} rows{of_others}, lr {data.learning_rate:.3g}"


METRICS = {
    "approx_kl": "KL {:.4f}",
    "divergence": "divergence {:.4f}",
    "entropy": "entropy {:.3f}",
    "seconds": "{:.1f} s",
}
"""Formats of the usual metrics of trainings by PPO or search."""


def _training(data: TrainingCompleted) -> str:
    """Return a training's step, model, rows and usual metrics, or its first ones if it has no usual ones."""
    metrics = data.metrics or {}
    usual = [text.format(metrics[name]) for name, text in METRICS.items() if name in metrics]
    others = [f"{name} {_value(value)}" for name, value in metrics.items()]
    how = ", ".join(usual) or _listed(others, ", ")
    rows = "" if data.rows is None else f" from {data.rows} rows"
    return f"step {data.step}: {short(data.model)}{rows}{', ' if how else ''}{how}"


def _evaluation(data: EvaluationCompleted) -> str:
    results = ", ".join(f"{_points(result)} v. {result.opponent}" for result in data.results)
    undecided = f", {data.undecided_games} games without a decision" if data.undecided_games else ""
    alike = ", no difference can be shown: all games end alike" if games_repeat(data) else ""
    elo = show_elo(data.elo, data.elo_stderr)
    return f"{data.purpose}, step {data.step}: {short(data.model)} {elo} Elo, {results}{undecided}{alike}"


def _points(match: MatchResult) -> str:
    """Return a match's score; in graded games, the mean outcome in the game's own units behind it."""
    outcome = match.graded_outcome
    return f"{match.score.mean:.1%}" + (f" ({outcome.mean:+.3g})" if outcome else "")


def _judged(data: ModelPromoted | PromotionRejected) -> str:
    """Return the decision with its evidence. Figures are left out if they are 0, as in an operator's decision."""
    step, evidence, figures = f"step {data.step}", data.evidence, ""
    if isinstance(data, ModelPromoted):
        what = f"{short(data.previous)} → {short(data.model)}"
    else:
        what = f"{short(data.model)} is rejected ({short(data.current)} stays)"
    if evidence.value or evidence.threshold:
        figures = f": {evidence.value:.2f}, {evidence.threshold:.2f} needed"
    elo = show_elo(evidence.elo, evidence.elo_stderr)
    return f"{step}: {what}, {evidence.statistic}{figures}; {elo} Elo"


def _advised(data: ModelAdvised) -> str:
    """Return the advice about a model, and what it would replace."""
    what = {"promote": "promote", "reject": "do not take", "roll_back": "restore"}[data.advice]
    instead = f" (now {short(data.current)})" if data.current else ""
    return f"advice: {what} {short(data.model)}, step {data.step}{instead}, because {data.reason}"


def _rolled_back(data: ModelRolledBack) -> str:
    return f"{short(data.from_model)} → {short(data.to_model)}, step {data.step}, because {data.reason}"


def _parameter(data: HyperparameterUpdated) -> str:
    return f"{data.parameter} {data.previous:.4g} → {data.value:.4g} because {data.reason}"


def _boost(data: ExplorationBoost) -> str:
    """Return the boost. A controller's reason names the boost before, an operator's may not."""
    lasts = f" for {show_age(data.lasts_seconds)}" if data.multiplier > 1 else ""
    return f"temperature x {data.multiplier:.3g}{lasts}: {data.reason}"


def _penalty(data: QualityPenaltyApplied) -> str:
    poor = data.quality_score < data.threshold
    compared, name = ("below", "penalty_below") if poor else ("at least", "lift_at")
    why = f"data quality {data.quality_score:.2f} is {compared} the threshold (feedback.quality.{name} ="
    return f"rate of self-play x {data.rate_multiplier:.3g} because {why} {data.threshold:g})"


def _intensity(data: TrainingIntensityChanged) -> str:
    """Return the change, with the setting that decided: the bound that the quality reaches, or fell below."""
    change = f"{data.previous} → {data.intensity}"
    if data.quality_score is None:
        return change
    levels = get_args(Intensity)
    level, before = levels.index(data.intensity), levels.index(data.previous)
    bound = f"feedback.intensity.{levels[min(level + (level < before), len(levels) - 1)]}"
    compared = "below" if level < before else "at least"
    remedy = ". What to do: flyball status" if data.intensity == "paused" else ""
    return f"{change} because data quality {data.quality_score:.2f} is {compared} {bound}{remedy}"


def _plateau(data: PlateauDetected) -> str:
    return f"a stall: {stall_text(data)}; a boost comes before a plateau"


def _regression(data: RegressionDetected) -> str:
    """Return the drop with what it was measured by, because ratings, which count other games, may drop less."""
    good = f"; {short(data.last_good)} was the last good one" if data.last_good else ""
    games = f"in {data.games} games against {fixed_opponent(data)}"
    return f"{short(data.model)} plays {data.elo_drop:.0f} Elo worse than good models {games}: {data.severity}{good}"


def _matchmaking(data: MatchmakingUpdated) -> str:
    shares = chances(data.picks)
    names = {agent: "itself" if agent == data.model else _value(agent) for agent in shares}
    met = [f"{share:.0%} {names[agent]}" for agent, share in shares.items()]
    return f"{short(data.model)} is matched against {_listed(met, ', ')} (league.matchmaking)"


def _rebalanced(data: CurriculumRebalanced) -> str:
    """Return the reason and the weights, the greatest first. Of many weights, the least one stands at the end."""
    ordered = sorted(data.weights.items(), key=lambda item: item[1], reverse=True)
    texts = [f"{key} {weight:.2f}" for key, weight in ordered]
    more = len(texts) - MOST_WEIGHTS
    listed = texts if more <= 0 else [*texts[: MOST_WEIGHTS - 1], f"{more} more", texts[-1]]
    return f"{data.reason}; all weights: {', '.join(listed)}"


def _configured(data: RunConfigured) -> str:
    configs = data.settings.get("configs")
    names = [config.get("key") for config in configs if isinstance(config, dict)] if isinstance(configs, list) else []
    return f"{', '.join(map(str, names))}, seed {data.settings.get('seed')}"


SUMMARIES: Mapping[type[Payload], Callable[[Any], str]] = {
    ExplorationBoost: _boost,
    HyperparameterUpdated: _parameter,
    ModelAdvised: _advised,
    ModelRolledBack: _rolled_back,
    NodeQuarantined: lambda data: (
        f"{data.worker} for {show_age(data.lasts_seconds)} because {data.reason}; its shards that wait are dropped"
    ),
    NodeReleased: lambda data: f"{data.worker} because {data.reason}",
    PlateauDetected: _plateau,
    QualityPenaltyApplied: _penalty,
    RegressionDetected: _regression,
    TrainingBlockedByQuality: lambda data: f"no training because {data.reason}; the shards that wait are dropped",
    TrainingUnblocked: lambda data: f"training again because {data.reason}",
    QualityDegraded: _degraded,
    SelfplayComplete: _selfplay,
    SelfplayRequested: _selfplay_request,
    TrainingRequested: _training_request,
    TrainingCompleted: _training,
    EvaluationCompleted: _evaluation,
    ModelPromoted: _judged,
    PromotionRejected: _judged,
    MatchmakingUpdated: _matchmaking,
    TrainingIntensityChanged: _intensity,
    CurriculumRebalanced: _rebalanced,
    RunConfigured: _configured,
}


def _fields(data: Payload) -> str:
    fields = data.model_dump(mode="json").items()
    return ", ".join(f"{name} {_value(value)}" for name, value in fields if name not in IDENTIFIERS)


def _listed(texts: Sequence[str], separator: str) -> str:
    more = len(texts) - LONG_LIST
    return separator.join(texts[:LONG_LIST]) + (f" and {more} more" if more > 0 else "")


def _value(value: Any) -> str:
    match value:
        case float():
            return f"{value:.4g}"
        case dict():
            return " ".join(f"{key}={_value(item)}" for key, item in value.items())
        case list():
            return _listed([*map(_value, value)], " ") or "none"
        case None:
            return "none"
    text = one_line(str(value))
    if len(text) >= 32 and set(text) <= set("0123456789abcdef"):
        return short(text)
    return text if len(text) <= LONG_TEXT else text[: LONG_TEXT - 1] + "…"
