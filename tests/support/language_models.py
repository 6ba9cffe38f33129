"""A small base model for text connect four, and random adapters."""

from functools import cache
from math import ceil
from random import Random
from typing import Any

import torch

from flyball.app.config import NetworkSettings
from flyball.app.core import ConfigKey
from flyball.app.language.adapters import draw_adapter, put_adapter
from flyball.app.language.base_model import BaseModel, draw_base, get_base, put_base, train_tokenizer
from flyball.app.language.generator import Adapter, PromptRequest, get_adapter
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.language.text_game import TextTurn
from flyball.app.language.text_games import TEXT_GAMES
from flyball.app.store import BlobStore, Manifest

KEY = ConfigKey("connect_four_text_2p")
TARGETS = ("q_proj", "v_proj", "down_proj")


@cache
def turns(count: int, seed: int = 0) -> list[TextTurn]:
    """Return turns of random games, six from each game. No game is over before its seventh turn."""
    games = ceil(count / 6)
    table, rng, found = TEXT_GAMES["connect_four"](games, None), Random(seed), []
    table.reset(range(games), range(games), [0] * games)
    while len(found) < count:
        asked = table.pending()
        found += asked
        for turn in asked:
            table.submit(turn.slot, turn.seat, table.bot("random", turn, rng))
        table.advance()
    rng.shuffle(found)
    return found[:count]


def small_base(store: BlobStore, seed: int = 0) -> BaseModel:
    """Store a base model of 40,000 parameters; return it as loaded."""
    tokenizer = train_tokenizer([turn.prompt + text for turn in turns(20) for text in turn.answers.texts], 512)
    drawn = draw_base(tokenizer, seed, layers=2, width=32, heads=1)  # vLLM on CPUs needs heads of 32 numbers
    return get_base(store, put_base(store, drawn))


def random_adapter(
    store: BlobStore, generator: PeftGenerator, seed: int, *, rank: int = 4, size: float = 0.3
) -> Adapter:
    """Store an adapter with random A and B; return it as loaded."""
    draw_adapter(generator, "drawn", rank=rank, alpha=2 * rank, targets=TARGETS, seed=seed)
    rng = torch.Generator().manual_seed(seed)
    for name, parameter in generator.peft.named_parameters():
        if "lora_B.drawn" in name:
            parameter.data = torch.randn(parameter.shape, generator=rng) * size
    manifest = first_manifest()
    model = put_adapter(store, generator, "drawn", manifest, canary=canary_texts(generator.base))
    generator.drop("drawn")
    return get_adapter(store, model)


def first_manifest() -> Manifest:
    """Return the manifest of a first model."""
    sizes = {"network": NetworkSettings(), "obs_size": 1, "actions": 1}
    return Manifest(config_key=KEY, backend="language", content="lora", step=0, parent=None, optimizer=None, **sizes)


def canary_texts(base: BaseModel) -> list[list[int]]:
    """Return the token ids of fixed texts."""
    return [base.encode(turn.prompt + turn.answers.texts[0]) for turn in turns(3, seed=1)]


def requests(*names: str | None, count: int = 6) -> list[PromptRequest]:
    """Return requests of adapters in turn; None is the base model."""
    return [PromptRequest(turn.prompt, names[k % len(names)], turn.answers, k) for k, turn in enumerate(turns(count))]


def passes_canary(model: Any, adapter: Adapter) -> bool:
    """Return whether a model of transformers has the log-probabilities that an adapter's canary says."""
    lora = adapter.checkpoint.manifest.lora
    assert lora is not None
    for text, written in zip(lora.canary.ids, lora.canary.log_probs, strict=True):
        with torch.no_grad():
            scores = model(input_ids=torch.tensor([text])).logits[0, :-1].log_softmax(-1)
        found = scores.gather(1, torch.tensor(text[1:])[:, None])[:, 0]
        if not torch.allclose(found, torch.tensor(written), atol=1e-4):
            return False
    return True
