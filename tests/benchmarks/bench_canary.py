"""False alarms of the canary in 1,000 swaps of adapters, and what a swap costs.

Figures: tests/benchmarks/RESULTS.md.
"""

import time

import numpy as np
import pytest
from language_models import random_adapter, turns

from app.language.base_model import draw_base, get_base, put_base, train_tokenizer
from app.language.generator import TOLERANCE, Request, Sampling, check_canary
from app.language.peft_generator import PeftGenerator
from app.store import MemoryStore

SWAPS, ADAPTERS, LOADED = 1_000, 12, 5


@pytest.mark.benchmark
@pytest.mark.timeout(3600)
def test_thousand_swaps_raise_no_false_alarm() -> None:
    """Adapters come and go beside others, with games played between, on a base model of 0.7 million parameters."""
    store = MemoryStore()
    tokenizer = train_tokenizer([turn.prompt + text for turn in turns(20) for text in turn.answers.texts], 512)
    generator = PeftGenerator(get_base(store, put_base(store, draw_base(tokenizer, 0))))
    adapters = [random_adapter(store, generator, seed, rank=8) for seed in range(ADAPTERS)]
    rng, alarms, differences, seconds = np.random.default_rng(0), 0, [], []
    while len(seconds) < SWAPS:
        adapter = adapters[int(rng.integers(ADAPTERS))]
        if adapter.name in generator.loaded:
            continue
        if len(generator.loaded) == LOADED:
            generator.unload(generator.loaded[int(rng.integers(LOADED))])
        began = time.perf_counter()
        generator.load(adapter)  # raises at a false alarm
        seconds.append(time.perf_counter() - began)
        differences.append(check_canary(generator, adapter))
        alarms += differences[-1] > TOLERANCE
        if len(seconds) % 10 == 0:
            names = [*generator.loaded, None]
            asked = [Request(t.prompt, names[k % len(names)], t.answers, k) for k, t in enumerate(turns(24))]
            generator.generate(asked, Sampling(1.0, "\n", 8))
    print(  # noqa: T201
        f"\nfalse alarms {alarms} of {SWAPS}; largest difference {max(differences):.1e} nats (limit {TOLERANCE:g}); "
        f"a swap takes {np.median(seconds) * 1e3:.0f} ms (median)"
    )
    assert alarms == 0
