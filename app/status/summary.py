"""Events in one line, for people."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from app.core import Rate
from app.events import (
    EvaluationCompleted,
    MatchmakingUpdated,
    ModelPromoted,
    OpponentPick,
    Payload,
    PromotionRejected,
    RunConfigured,
    SelfplayComplete,
    TrainingCompleted,
    TrainingRequested,
)
from app.status.configs import Progress


def chances(picks: Iterable[OpponentPick]) -> dict[str, float]:
    """Return the probability with which each agent is met, whatever it is picked for; the likeliest first."""
    met: dict[str, float] = {}
    for pick in picks:
        met[pick.agent] = met.get(pick.agent, 0.0) + pick.probability
    return dict(sorted(met.items(), key=lambda one: one[1], reverse=True))


HASH_DIGITS = 8
UNKNOWN = "-"
"""Placeholder of an unknown value: never 0."""

LONG_TEXT = 60
LONG_LIST = 4
IDENTIFIERS = frozenset({"request_id", "evaluation_id", "shard", "seed", "run_id"})
"""Fields that tell a reader nothing."""


def short(identifier: str | None) -> str:
    """Return the beginning of a hash, enough to tell it from others."""
    return identifier[:HASH_DIGITS] if identifier else "none"


def show_elo(elo: float | None, stderr: float | None) -> str:
    """Return a rating with its standard error; a dash when unknown."""
    return UNKNOWN if elo is None else f"{elo:+.0f} ± {stderr or 0:.0f}"


def show_rate(rate: Rate | None) -> str:
    """Return a proportion with its 95% interval and sample size; a dash when unknown."""
    if rate is None:
        return UNKNOWN
    return f"{rate.mean:.1%} [{rate.lower:.1%}, {rate.upper:.1%}] n={rate.n}"


def show_progress(progress: Progress | None) -> str:
    """Return the score against an earlier champion and its age in loops; a dash when unknown."""
    if progress is None:
        return UNKNOWN
    score = progress.score
    return f"{score.mean:.0%} [{score.lower:.0%}, {score.upper:.0%}], {progress.loops} loops ago"


def show_age(seconds: float) -> str:
    """Return a duration in the unit that suits it."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def summarise(data: Payload) -> str:
    """Say in one line what a payload says, whatever names in it are made of."""
    special = SUMMARIES.get(type(data), _fields)
    return " ".join(special(data).split())


def _selfplay(data: SelfplayComplete) -> str:
    shard = data.shard
    return f"{shard.games} games, {shard.rows} rows with {short(shard.model)} in {data.seconds:.1f} s by {shard.worker}"


def _training_asked(data: TrainingRequested) -> str:
    if data.base_model is None:
        return "the initial model"
    rows = sum(shard.rows for shard in data.shards)
    return f"from {short(data.base_model)}, step {data.step}, {rows} rows, lr {data.learning_rate:.3g}"


def _training(data: TrainingCompleted) -> str:
    metrics = data.metrics
    how = f", KL {metrics.approx_kl:.4f}, entropy {metrics.entropy:.3f}, {metrics.seconds:.1f} s" if metrics else ""
    return f"step {data.step}: {short(data.model)} from {data.rows} rows{how}"


def _evaluation(data: EvaluationCompleted) -> str:
    results = ", ".join(f"{result.score.mean:.1%} v. {result.opponent}" for result in data.results)
    return f"step {data.step}: {short(data.model)} {show_elo(data.elo, data.elo_stderr)} Elo, {results}"


def _promoted(data: ModelPromoted) -> str:
    return f"step {data.step}: {short(data.model)} after {short(data.previous)}, {_why(data)}"


def _rejected(data: PromotionRejected) -> str:
    return f"step {data.step}: {short(data.model)}, {short(data.current)} stays, {_why(data)}"


def _why(data: ModelPromoted | PromotionRejected) -> str:
    """Say why: without the figures where none decided, as when an operator did."""
    evidence = data.evidence
    elo = show_elo(evidence.elo, evidence.elo_stderr)
    if evidence.value == evidence.threshold == 0:
        return f"{evidence.statistic}, {elo} Elo"
    return f"{evidence.statistic}: evidence {evidence.value:.1f}, {evidence.threshold:.1f} needed, {elo} Elo"


def _matchmaking(data: MatchmakingUpdated) -> str:
    shares = chances(data.picks)
    names = {agent: "itself" if agent == data.model else _value(agent) for agent in shares}
    met = [f"{share:.0%} {names[agent]}" for agent, share in shares.items()]
    return f"{short(data.model)} meets {_listed(met, ', ')}"


def _configured(data: RunConfigured) -> str:
    configs = data.settings.get("configs")
    names = [config.get("key") for config in configs if isinstance(config, dict)] if isinstance(configs, list) else []
    return f"{', '.join(map(str, names))}, seed {data.settings.get('seed')}"


SUMMARIES = cast(
    "dict[type[Payload], Callable[[Payload], str]]",
    {
        SelfplayComplete: _selfplay,
        TrainingRequested: _training_asked,
        TrainingCompleted: _training,
        EvaluationCompleted: _evaluation,
        ModelPromoted: _promoted,
        PromotionRejected: _rejected,
        MatchmakingUpdated: _matchmaking,
        RunConfigured: _configured,
    },
)


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
    text = " ".join(str(value).split())
    is_hash = len(text) >= 32 and all(digit in "0123456789abcdef" for digit in text)
    if is_hash:
        return short(text)
    return text if len(text) <= LONG_TEXT else text[: LONG_TEXT - 1] + "…"
