"""A quality penalty lowers the rate of self-play requests by its factor."""

from collections import Counter
from heapq import heapify, heappop, heappush
from itertools import count

import pytest
from driving import KEY, OTHER_KEY, Driven, distributed, played, run_settings, scored

from app.controllers import SelfplayScheduler
from app.events import (
    ClockTick,
    DaemonReady,
    Payload,
    QualityPenaltyApplied,
    SelfplayRequested,
    TrainingIntensityChanged,
)

WARM_UP, MEASURED = 10, 40
"""Lengths of warm-up and measurement in rounds of one request for each configuration."""

PAUSED = TrainingIntensityChanged(intensity="paused", previous="normal", quality_score=0.2)


def requests_of(seconds: float, *, workers: int, paused: bool, rate: float, keys: tuple[str, ...]) -> int:
    """Return the number of requests of a configuration after the warm-up.

    Args:
        seconds: how long a request takes a worker.
        workers: their number; each runs one job at a time.
        paused: whether the training of the configuration is paused.
        rate: rate multiplier of its penalty, which holds from the end of the warm-up.
        keys: the playing configurations, the penalised one first.
    """
    scheduler = Driven(SelfplayScheduler, run_settings(*keys))
    each = len(keys) * seconds + (scheduler.settings.feedback.scheduler.idle_seconds if paused else 0)
    begins, ends, tick = WARM_UP * each, (WARM_UP + MEASURED) * each, max(seconds / 5, each / 20)
    ready = [DaemonReady(daemon="selfplay_worker", node=f"n{n}", position=0, capacity=1) for n in range(workers)]
    penalty = QualityPenaltyApplied(rate_multiplier=rate, quality_score=0.2, threshold=0.3)
    order, free_at, made = count(), Counter[str](), 0
    due: list[tuple[float, int, str, list[Payload]]] = [(0.0, next(order), key, [distributed()]) for key in keys]
    due += [(begins / 10, next(order), keys[0], [PAUSED])] if paused else []
    due += [(begins, next(order), keys[0], [penalty])]
    due.append((0.0, next(order), "", ready))
    due += [(n * tick, next(order), "", [ClockTick(period_seconds=tick)]) for n in range(int(ends / tick))]
    heapify(due)
    while due and due[0][0] < ends:
        now, _, key, payloads = heappop(due)
        for envelope in scheduler.envelopes(*payloads, key=key or None, at=now):
            request = envelope.data
            if not isinstance(request, SelfplayRequested):
                continue
            made += envelope.subject == keys[0] and now >= begins
            free_at[request.worker] = max(now, free_at[request.worker]) + seconds
            answer = played(model=request.model)
            answer = answer.replace(request_id=envelope.id, seconds=seconds)
            shard = scored(model=request.model, rows=1, request=envelope.id)
            heappush(due, (free_at[request.worker], next(order), envelope.subject, [answer, shard]))
    return made


@pytest.mark.parametrize("keys", [(KEY,), (KEY, OTHER_KEY)], ids=["alone", "beside another"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("paused", [False, True], ids=["training", "paused"])
@pytest.mark.parametrize("seconds", [10.0, 500.0])
def test_a_penalty_of_one_half_halves_the_requests(seconds, paused, workers, keys):
    """The rate may fall to slightly less than half.

    A configuration whose turn has come still waits for a free worker.
    """
    usual, penalised = (
        requests_of(seconds, workers=workers, paused=paused, rate=rate, keys=keys) for rate in (1.0, 0.5)
    )
    assert usual > 30
    assert 0.3 < penalised / usual < 0.6
