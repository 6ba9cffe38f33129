"""False alarms of the canary in 1,000 swaps of adapters, and answers a second in a batch and one at a time.

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


pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]


def large_generator(store: MemoryStore) -> PeftGenerator:
    """Return a generator of a base model of 0.7 million parameters."""
    tokenizer = train_tokenizer([turn.prompt + text for turn in turns(20) for text in turn.answers.texts], 512)
    return PeftGenerator(get_base(store, put_base(store, draw_base(tokenizer, 0))))


@pytest.mark.parametrize("number", range(3))
def test_batch_against_one_at_a_time(number: int) -> None:
    """Four adapters, 128 prompts of connect four, answers of six tokens that are drawn freely."""
    generator = large_generator(store := MemoryStore())
    adapters = [random_adapter(store, generator, seed, rank=8) for seed in range(4)]
    for adapter in adapters:
        generator.load(adapter)
    asked = [Request(t.prompt, adapters[k % 4].name, None, k) for k, t in enumerate(turns(128))]
    sampling, seconds = Sampling(1.0, "no such text", 6), {}
    generator.generate(asked[:8], sampling)
    for name, parts in (("batch", [asked]), ("alone", [[one] for one in asked])):
        began = time.process_time()
        tokens = sum(len(made.ids) for part in parts for made in generator.generate(part, sampling))
        seconds[name] = (time.process_time() - began) / tokens
    ratio = seconds["alone"] / seconds["batch"]
    print(f"\n{1 / seconds['batch']:,.0f} tokens a second of processor time, {ratio:.1f} times one at a time")  # noqa: T201
    assert ratio > 1.5


def test_thousand_swaps_raise_no_false_alarm() -> None:
    """Adapters come and go beside others, with games played between, on a base model of 0.7 million parameters."""
    generator = large_generator(store := MemoryStore())
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
