"""Language models on a GPU: canaries agree with those of a CPU.

Canaries from a CPU are valid on a GPU, and those from a GPU on a CPU.
"""

from pathlib import Path

import numpy as np
import pytest
from language_models import KEY, random_adapter, small_base, turns

from flyball.app.config import CPU, GAMES, Compute, LanguageSettings
from flyball.app.language import jobs, selfplay
from flyball.app.language.generator import TOLERANCE, PromptRequest, Sampling, check_canary, get_adapter
from flyball.app.language.models import GeneratorCache
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.store import FileStore, MemoryStore

pytestmark = pytest.mark.gpu
SMALL = LanguageSettings(teacher="random", lessons=256, base_layers=2, base_width=32, base_heads=2, group_games=4)


@pytest.mark.parametrize(("precision", "near"), [("float32", 1e-3), ("bfloat16", 0.2)])
def test_adapter_on_a_gpu_is_recognised_and_answers_as_on_a_cpu(precision: str, near: float) -> None:
    store = MemoryStore()
    here, there = (PeftGenerator(small_base(store), one) for one in (CPU, Compute(device="cuda", precision=precision)))
    adapter = random_adapter(store, here, 0)
    here.load(adapter)
    there.load(adapter)
    assert check_canary(there, adapter) < TOLERANCE / 10
    asked = [PromptRequest(turn.prompt, adapter.name, turn.answers, seed) for seed, turn in enumerate(turns(32))]
    greedy = Sampling(0.0, "\n", 6)
    pairs = zip(here.generate(asked, greedy), there.generate(asked, greedy), strict=True)
    apart = [abs(sum(a.log_probs) - sum(b.log_probs)) for a, b in pairs if a.ids == b.ids]
    assert len(apart) > 16
    assert np.max(apart) < near


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_adapter_of_a_gpu_is_recognised_on_a_cpu(tmp_path: Path, precision: str, *, checkpointing: bool) -> None:
    config = GAMES[KEY].replace(language=SMALL.replace(gradient_checkpointing=checkpointing))
    gpu = {"device": "cuda", "precision": precision}
    spec = {"store": str(tmp_path), "config": config.model_dump(mode="json"), "seed": 1} | gpu
    first = jobs.initialise(spec, lambda _: None)["model"]
    about = {"model": first, "games": 8, "temperature": 1.0, "worker": "test"}
    played = selfplay.play(spec | about, lambda _: None)["shard"]
    training = {"base_model": first, "shards": [played], "step": 0, "learning_rate": 1e-3, "epochs": 1}
    trained = jobs.train(spec | training, lambda _: None)
    assert trained["metrics"]["approx_kl"] < (1e-5 if precision == "float32" else 1e-2)
    store = FileStore(tmp_path)
    generator = GeneratorCache().get(store, config, [trained["model"]], CPU)
    assert check_canary(generator, get_adapter(store, trained["model"])) < TOLERANCE / 10
