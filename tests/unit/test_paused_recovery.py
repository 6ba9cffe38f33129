"""A paused configuration resumes training by itself, in a closed loop."""

from collections.abc import Callable
from typing import Any

import pytest
from builders import configured, intensity, ready, recorded
from driving import HOUR, KEY, NEED, OLD, folded, run_settings, scored, settled

from flyball.app.controllers import FeedbackLoopController, SelfplayScheduler, TrainingTrigger
from flyball.app.controllers.fold import Fold
from flyball.app.controllers.needs import most_rows
from flyball.app.controllers.scheduler import CONFIG
from flyball.app.controllers.state import state_of
from flyball.app.events import (
    ClockTick,
    Envelope,
    Event,
    ExplorationBoost,
    Payload,
    SelfplayRequested,
    TrainingIntensityChanged,
    TrainingRequested,
)

TICK_SECONDS = 10
ROWS = NEED // 4
WORKER = ready("selfplay_worker")


class ClosedLoop:
    """Scheduler, trigger and feedback loop in a closed loop."""

    def __init__(self, quality: Callable[[float, float], float]) -> None:
        self.fold = Fold((SelfplayScheduler, TrainingTrigger, FeedbackLoopController))
        self.quality, self.now, self.position = quality, 0.0, 0
        self.published: list[tuple[float, Payload]] = []
        self.asked: list[Envelope[SelfplayRequested]] = []
        self.feed(configured(run_settings()), key=None)
        self.feed(WORKER, key=None)
        for fact in settled(state_of(self.fold.states, KEY).lineage):
            self.feed(fact)

    def feed(self, data: Payload, key: str | None = KEY) -> None:
        waiting = [recorded(data, self.position + 1, key, seconds=self.now).envelope]
        while waiting:
            self.position += 1
            envelope = waiting.pop(0)
            self.published.append((self.now, envelope.data))
            if isinstance(envelope.data, SelfplayRequested):
                self.asked.append(envelope)
            event = Event(envelope, self.position, round(self.now * 1e6), "broker@laptop")
            waiting += folded(self.fold, event).envelopes

    def run(self, hours: float) -> None:
        """Let hours pass and answer all requests for games."""
        end = self.now + hours * HOUR
        while self.now < end:
            self.now += TICK_SECONDS
            self.feed(ClockTick(period_seconds=TICK_SECONDS), key=None)
            self.feed(WORKER, key=None)
            asked, self.asked = self.asked, []
            for envelope in asked:
                score = self.quality(envelope.data.temperature, self.now)
                self.feed(scored(score, model=OLD, rows=ROWS, request=envelope.id))

    def times(self, kind: type[Payload], **fields: Any) -> list[float]:
        found = ((at, data) for at, data in self.published if isinstance(data, kind))
        return [at / HOUR for at, data in found if fields.items() <= vars(data).items()]


def poor_for_two_hours(_temperature: float, now: float) -> float:
    return 0.4 if now < 2 * HOUR else 0.9


def varied_by_temperature(temperature: float, _now: float) -> float:
    """Return the score of an overconfident policy. Its games are alike until a higher temperature makes it explore."""
    return 0.35 + 0.2 * (temperature - 1)


@pytest.mark.parametrize(
    "quality", [poor_for_two_hours, varied_by_temperature], ids=["data get better", "exploring helps"]
)
def test_training_comes_back_by_itself(quality: Callable[[float, float], float]) -> None:
    loop = ClosedLoop(quality)
    loop.run(8)
    (paused,) = loop.times(TrainingIntensityChanged, intensity="paused")
    assert [at for at in loop.times(TrainingIntensityChanged, previous="paused") if at > paused]
    assert [at for at in loop.times(TrainingRequested) if at > paused]


def test_pause_is_answered_and_piles_up_no_more_than_needed() -> None:
    loop = ClosedLoop(lambda _temperature, _now: 0.4)
    loop.run(12)
    boosts = [data for _, data in loop.published if isinstance(data, ExplorationBoost)]
    assert [boost.multiplier for boost in boosts[:2]] == [1.5, 2.25]
    assert max(boost.multiplier for boost in boosts) == 2.25
    assert "quality" in boosts[0].reason
    loop.feed(intensity("reduced", "paused", 0.5))
    request = loop.published[-1][1]
    assert isinstance(request, TrainingRequested)
    assert sum(shard.rows for shard in request.shards) == most_rows(state_of({}, KEY), run_settings())
    assert loop.fold.rows(SelfplayScheduler.name)[CONFIG + KEY].config.shards == (), "it counted no others"
