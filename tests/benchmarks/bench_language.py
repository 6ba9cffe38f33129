"""Language models: false alarms of the canary, and answers a second.

False alarms are counted in 1,000 swaps of adapters. Answers are generated in batches, one at a time, and by TRL.
Figures: tests/benchmarks/results/language.md.
"""

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from language_models import random_adapter, turns
from safetensors.torch import load as load_tensors
from trl_trainer import trl_trainer

from flyball.app.core.statistics import student
from flyball.app.language.base_model import BaseModel, draw_base, get_base, put_base, train_tokenizer
from flyball.app.language.generator import TOLERANCE, Adapter, PromptRequest, Sampling, check_canary
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.store import MemoryStore

SWAPS, ADAPTERS, LOADED = 1_000, 12, 5
ROUNDS = 20


pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]


def large_generator(store: MemoryStore) -> PeftGenerator:
    """Return a generator of a base model of 0.7 million parameters."""
    tokenizer = train_tokenizer([turn.prompt + text for turn in turns(20) for text in turn.answers.texts], 512)
    return PeftGenerator(get_base(store, put_base(store, draw_base(tokenizer, 0))))


@pytest.mark.parametrize("number", range(3))
def test_batch_against_one_at_a_time(number: int) -> None:
    """Answer 128 prompts of connect four by four adapters. Answers are six tokens, drawn freely."""
    generator = large_generator(store := MemoryStore())
    adapters = [random_adapter(store, generator, seed, rank=8) for seed in range(4)]
    for adapter in adapters:
        generator.load(adapter)
    asked = [PromptRequest(t.prompt, adapters[k % 4].name, None, k) for k, t in enumerate(turns(128))]
    sampling, seconds = Sampling(1.0, "no such text", 6), {}
    generator.generate(asked[:8], sampling)
    for name, parts in (("batch", [asked]), ("alone", [[one] for one in asked])):
        began = time.process_time()
        tokens = sum(len(made.ids) for part in parts for made in generator.generate(part, sampling))
        seconds[name] = (time.process_time() - began) / tokens
    ratio = seconds["alone"] / seconds["batch"]
    print(f"\n{1 / seconds['batch']:,.0f} tokens a second of processor time, {ratio:.1f} times one at a time")  # noqa: T201
    assert ratio > 1.5


@pytest.mark.skipif(find_spec("trl") is None, reason="needs TRL")
@pytest.mark.filterwarnings("ignore")  # TRL's, and those of its packages
@pytest.mark.parametrize("tokens", [6, 32])
@pytest.mark.parametrize(("numbered", "least"), [(False, 1.0), (True, 0.8)])
def test_answers_a_second_against_trl(tmp_path: Path, tokens: int, numbered: bool, least: float) -> None:
    """Answer 128 prompts in one batch, by the same model and adapter. Answers are free, and none ends early."""
    generator = large_generator(store := MemoryStore())
    generator.load(adapter := random_adapter(store, generator, 0, rank=8))
    prompts = [f"{number:03} {turn.prompt}" if numbered else turn.prompt for number, turn in enumerate(turns(128))]
    asked = [PromptRequest(prompt, adapter.name, None, k) for k, prompt in enumerate(prompts)]
    trainer = trainer_of(get_base(store, generator.fingerprint), adapter, tokens, tmp_path)

    def ours() -> int:
        return sum(len(made.ids) for made in generator.generate(asked, Sampling(1.0, "no such text", tokens)))

    def theirs() -> int:
        return sum(len(ids) for ids in trainer._generate(prompts)[1])

    assert ours() == theirs() == tokens * len(prompts)  # the first call of each is not timed
    rates = []
    for number in range(ROUNDS):
        rate = {made: tokens_a_second(made) for made in ((ours, theirs) if number % 2 else (theirs, ours))}
        rates.append((rate[ours], rate[theirs]))
    logs = np.log(rates)  # [round, ours or theirs]
    ratios = logs[:, 0] - logs[:, 1]
    ratio = float(ratios.mean())
    half, _ = student(ratio, float(ratios.std(ddof=1)) / ROUNDS**0.5, ROUNDS - 1)
    by_ours, by_theirs = np.exp(logs.mean(0))
    print(  # noqa: T201
        f"\n{tokens} tokens, numbered {numbered}: {by_ours:,.0f} tokens a second of processor time, "
        f"TRL {by_theirs:,.0f}; ratio {np.exp(ratio):.2f} ({np.exp(ratio - half):.2f} to {np.exp(ratio + half):.2f})"
    )
    assert np.exp(ratio - half) > least


def tokens_a_second(made: Callable[[], int]) -> float:
    """Return the tokens that a call makes a second of processor time."""
    began = time.process_time()
    tokens = made()
    return tokens / (time.process_time() - began)


def trainer_of(base: BaseModel, adapter: Adapter, tokens: int, folder: Path) -> Any:
    """Return a trainer of TRL around a base model and an adapter. All its answers have ``tokens`` tokens."""
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

    lora = adapter.checkpoint.manifest.lora
    assert lora is not None
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=list(lora.targets))
    model: Any = get_peft_model(base.model, config)
    set_peft_model_state_dict(model, load_tensors(adapter.checkpoint.parameters))
    # The model has no column for this end token, so it is never drawn.
    return trl_trainer(model, base, folder, end="<end>", max_completion_length=tokens, temperature=1.0)


def test_thousand_swaps_raise_no_false_alarm() -> None:
    """Swap adapters beside others, with games between. The base model has 0.7 million parameters."""
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
            asked = [PromptRequest(t.prompt, names[k % len(names)], t.answers, k) for k, t in enumerate(turns(24))]
            generator.generate(asked, Sampling(1.0, "\n", 8))
    print(  # noqa: T201
        f"\nfalse alarms {alarms} of {SWAPS}; largest difference {max(differences):.1e} nats (limit {TOLERANCE:g}); "
        f"a swap takes {np.median(seconds) * 1e3:.0f} ms (median)"
    )
    assert alarms == 0
