"""No configuration stands still: it trains, is boosted, or waits visibly.

Its status then says why it waits.

This holds for all settings that validation accepts, and all constant qualities of data. The controllers are real. Their
workers answer at once and always give the same answer.
"""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from math import isfinite
from typing import Any

import pytest
from driving import HOUR, KEY, OTHER_KEY, distributed, gated, match, played, rated, scored, trained
from hashes import sha
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from profiles import examples
from pydantic import ValidationError

from flyball.app.config import GAMES, FeedbackSettings, RunSettings
from flyball.app.config.base import FrozenModel
from flyball.app.controllers.fold import Fold
from flyball.app.controllers.needs import most_rows
from flyball.app.controllers.state import state_of
from flyball.app.core import RANDOM, derive_id
from flyball.app.events import (
    ClockTick,
    DaemonReady,
    EvaluationRequested,
    Event,
    ExplorationBoost,
    MatchesRequested,
    ModelPromoted,
    ModelRolledBack,
    NodeProbed,
    ParityChecked,
    Payload,
    RunConfigured,
    SelfplayComplete,
    SelfplayRequested,
    ShardRef,
    TrainingRequested,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.replay.replaying import controllers
from flyball.app.status.status import Board, ConfigStatus

ANSWERS_A_ROUND = 40
"""Most requests that are answered between two ticks."""

CONFIGS = (GAMES[KEY], GAMES[OTHER_KEY])
UNITS_SECONDS = (0.1, 60.0, 3600.0, 1e5)
MAGNITUDES = (0.2, 1.0, 5.0)
SETTLING = 30
"""Rounds before the first check."""

PATIENCE = 150
"""Rounds within which something must happen."""

EXAMPLES = settings(max_examples=examples(40), phases=[Phase.explicit, Phase.reuse, Phase.generate])

ASCENDING = {
    "stall": [("boost", "boost_cap")],
    "quality": [("penalty_below", "lift_at")],
    "intensity": [("reduced", "normal", "accelerated", "hot_path")],
    "learning_rate": [("minimum", "maximum"), ("lower_at_elo", "raise_at_elo")],
    "lifecycle": [("elo0", "elo1")],
    "nodes": [("pause_seconds", "longest_pause_seconds"), ("quarantine_seconds", "longest_quarantine_seconds")],
    "trigger": [("hot_path", "accelerated", "normal", "reduced")],
}
"""Settings whose values must ascend; independent draws rarely do."""


class ConstantRun:
    """All controllers, and workers that always give the same answer.

    Args:
        settings: of the run.
        quality: the score of every shard.
        trouble: games that differ from the rules, no games at all, no evaluations; ``None``: none.
        heuristic: the score of every model against the heuristic bot.
    """

    def __init__(
        self, settings: RunSettings, quality: float, trouble: str | None = None, heuristic: float = 0.95
    ) -> None:
        self.settings, self._quality, self._trouble, self._heuristic = settings, quality, trouble, heuristic
        self._round_us = round((settings.tick_seconds + settings.feedback.stall.check_seconds) * 1e6)
        self._fold, self.board = Fold(controllers()), Board()
        self.events: list[Event[Payload]] = []
        self._open: list[Event[Any]] = []
        self._now_us, self._said = 0, 0
        self._ready = [
            DaemonReady(daemon=worker.partition("@")[0], node=worker.partition("@")[2], position=0, capacity=1)
            for worker in settings.selfplay_workers
        ]
        self._say(RunConfigured(run_id="run", settings=settings.model_dump(mode="json")))

    def run(self, rounds: int) -> None:
        """Play rounds of answers, signs of life and a tick. A round lasts as long as two sweeps are apart at most."""
        for _ in range(rounds):
            self._now_us += self._round_us
            asked, self._open = self._open[:ANSWERS_A_ROUND], self._open[ANSWERS_A_ROUND:]
            for event in asked:
                for data in self._answers(event):
                    self._say(data, event.subject)
            for data in (*self._ready, ClockTick(period_seconds=self.settings.tick_seconds)):
                self._say(data)

    def status(self, key: str) -> ConfigStatus:
        """Return a configuration's `flyball status`."""
        status = self.board.status(EPOCH + timedelta(microseconds=self._now_us), presence=None, running=True)
        return next(config for config in status.configs if config.key == key)

    def all(self, kind: type[Payload], key: str) -> list[Any]:
        """Return the payloads of a type about a configuration."""
        return [event.data for event in self.events if isinstance(event.data, kind) and event.subject == key]

    def _say(self, data: Payload, key: str | None = None) -> None:
        self._said += 1
        waiting = [originate(data, event_id=f"said-{self._said}", time=EPOCH, subject=key)]
        while waiting:
            event = Event(waiting.pop(0), len(self.events) + 1, self._now_us, "broker@laptop")
            self.events.append(event)
            self.board.feed([event])
            self._open.append(event)
            outcome = self._fold.feed([event])
            assert outcome.failures == []
            waiting += outcome.envelopes

    def _answers(self, event: Event[Any]) -> Iterator[Payload]:  # noqa: C901 - one request a case
        asked, key = event.data, event.subject
        random = match(0.9, opponent=RANDOM)
        match asked:
            case TrainingRequested(base_model=base, step=step):
                model = derive_id("model", event.id) * 2
                done = trained(model, base, step + 1 if base else 0)
                yield done.replace(request_id=event.id)
            case EvaluationRequested(purpose="rating", model=model, step=step) if self._trouble != "no evaluations":
                against = (random, match(self._heuristic, opponent="heuristic"))
                yield rated(0.0, *against, model=model, step=step).replace(request_id=event.id)
            case EvaluationRequested(purpose="gate", model=model) if self._trouble != "no evaluations":
                champion = self.status(key).model or model
                yield gated(60, 0, 40, model, champion).replace(request_id=event.id)
            case MatchesRequested(model=model, step=step, purpose=purpose, games=games) if (
                self._trouble != "no evaluations"
            ):
                matches = [match(0.5, games, opponent=name) for name in asked.opponents]
                done = rated(0.0, *matches, model=model, step=step)
                yield done.replace(request_id=event.id, purpose=purpose)
            case SelfplayRequested(worker=worker, games=games) if self._trouble != "no games":
                rows = most_rows(state_of({}, key), self.settings) * 4
                shard = ShardRef(
                    key=sha(event.id), rows=rows, games=games, model=asked.model, seed=asked.seed, worker=worker
                )
                yield played().replace(request_id=event.id, probe=asked.probe, shard=shard)
            case SelfplayComplete(request_id=request, shard=shard, probe=probe):
                about = {"request_id": request, "worker": shard.worker, "shard": shard.key}
                failures = int(self._trouble == "parity")
                if probe:
                    yield NodeProbed(**about, score=None if failures else self._quality, error="no" * failures or None)
                    return
                yield ParityChecked(**about, against=None, checked=16, failures=failures)
                score = scored(self._quality, model=shard.model, rows=shard.rows, request=request, shard=shard.key)
                yield score.replace(shard=shard)
            case ModelPromoted(model=model, step=step) | ModelRolledBack(to_model=model, step=step):
                yield distributed(model, step)


def in_order(drawn: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return drawn settings with the values of these in ascending order."""
    there = [name for name in names if name in drawn]
    return drawn | dict(zip(there, sorted(drawn[name] for name in there), strict=True))


def accepted(section: type[FrozenModel], drawn: dict[str, Any]) -> bool:
    try:
        section.model_validate(drawn)
    except ValidationError:
        return False
    return True


@st.composite
def sections(draw: st.DrawFn, part: str, section: type[FrozenModel], unit_seconds: float) -> dict[str, Any]:
    """Draw a part of the feedback settings within its fields' bounds.

    All durations have one magnitude, because a run of a few hundred ticks has to be longer than each.
    """
    drawn: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        if name.endswith(("_seconds", "_hours")):
            hours = name.endswith("_hours")
            drawn[name] = draw(st.sampled_from(MAGNITUDES)) * unit_seconds / (HOUR if hours else 1)
        elif field.annotation in (int, float) and draw(st.booleans()):
            value = draw(st.from_type(field.rebuild_annotation()))
            drawn[name] = value if isfinite(value) else field.default
    for names in ASCENDING.get(part, ()):
        drawn = in_order(drawn, *names)
    return drawn


@st.composite
def run_settings(draw: st.DrawFn) -> RunSettings:
    """Draw settings that validation accepts."""
    unit = draw(st.sampled_from(UNITS_SECONDS))
    feedback = {
        name: draw(sections(name, field.annotation, unit).filter(partial(accepted, field.annotation)))  # type: ignore[arg-type, type-var]
        for name, field in FeedbackSettings.model_fields.items()
    }
    configs = draw(st.sampled_from([CONFIGS[:1], CONFIGS[1:], CONFIGS]))
    changed = {"rows_per_training": draw(st.integers(1, 10_000))}
    return RunSettings(
        configs=tuple(config.replace(**changed) for config in configs),
        tick_seconds=draw(st.sampled_from(MAGNITUDES)) * unit,
        min_quality=draw(st.floats(0, 1)),
        feedback=FeedbackSettings.model_validate(feedback),
    )


def is_boosted(run: ConstantRun, key: str) -> bool:
    boosts = run.all(ExplorationBoost, key)
    return bool(boosts) and boosts[-1].multiplier > 1


@pytest.mark.parametrize("trouble", [None, "parity", "no games", "no evaluations"])
@EXAMPLES
@given(data=st.data())
def test_nothing_stands_still_whatever_settings_and_quality(trouble: str | None, data: st.DataObject) -> None:
    """Without troubles, a configuration of sufficient quality trains; others are boosted."""
    chosen = data.draw(run_settings())
    quality = data.draw(st.floats(0, 1) | st.sampled_from([0.3, 0.5, 0.55, 0.6]))
    run = ConstantRun(chosen, quality, trouble, heuristic=data.draw(st.sampled_from([0.0, 0.5, 0.95])))
    run.run(SETTLING)
    for config in chosen.configs:
        before = len(run.all(TrainingRequested, config.key))
        for _ in range(PATIENCE):
            run.run(1)
            if trouble is not None:
                lives = run.status(config.key).waiting_for is not None
            elif quality < chosen.feedback.intensity.reduced:
                lives = is_boosted(run, config.key)
            else:
                lives = len(run.all(TrainingRequested, config.key)) > before
            if lives:
                break
        else:
            pytest.fail(f"{config.key} stands still")


@pytest.mark.parametrize("quality", [0.5, 0.55, 0.59, 0.9])
def test_a_quality_that_does_not_pause_trains_by_default(quality: float) -> None:
    """Let models beat the heuristic, which raises the quality threshold every hour."""
    run = ConstantRun(RunSettings(configs=CONFIGS[:1]), quality)
    run.run(60)
    before = len(run.all(TrainingRequested, KEY))
    run.run(20)
    assert len(run.all(TrainingRequested, KEY)) > before
