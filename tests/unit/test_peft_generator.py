"""The in-process generator: answers in parts, precision, canaries, foreign adapters."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from language_models import KEY, canary_texts, random_adapter, small_base, turns

from flyball.app.config import GAMES, Compute
from flyball.app.core import UnusableFile
from flyball.app.language.adapters import CONFIG, export_adapter
from flyball.app.language.generator import ModelMismatch, PromptRequest, Sampling, check_canary
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.language.peft_import import import_adapter
from flyball.app.language.scoring import answer_logits, log_probs
from flyball.app.language.text_game import Answers, OneOf, parts_of
from flyball.app.store import MemoryStore

STORE = MemoryStore()
BFLOAT16 = Compute(precision="bfloat16")


@pytest.fixture(scope="module")
def generator() -> PeftGenerator:
    return PeftGenerator(small_base(STORE))


@dataclass(frozen=True)
class Orders(Answers):
    """Two orders with long stretches of text that leave no choice."""

    def options(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        if not parts:
            return ("the first army holds where it stands. ", "the first army goes north. ")
        if len(parts) == 1:
            return ("the second army holds.\n", "the second army supports the first army in its attack.\n")
        return ()


@pytest.mark.parametrize("most_tokens", [2, 64])
def test_answer_in_parts_is_legal_and_never_cut(generator: PeftGenerator, most_tokens: int) -> None:
    adapter = random_adapter(STORE, generator, 1)
    generator.load(adapter)
    asked = [PromptRequest(turn.prompt, adapter.name, Orders(), seed) for seed, turn in enumerate(turns(12))]
    found = generator.generate(asked, Sampling(0.7, "\n", most_tokens))
    assert len({made.text for made in found}) > 2
    for made in found:
        assert parts_of(Orders(), made.text) is not None
        assert made.finish == "stop"
        assert sum(len(legal) > 1 for legal in made.allowed) == 2  # the rest is read in runs
        with torch.no_grad(), generator.active(adapter.name) as model:
            logits = answer_logits(model, [made.prompt], [made.ids])
            alone, _ = log_probs(logits, [made.ids], [made.allowed], [0.7])
        assert np.allclose(alone[0], made.log_probs, atol=1e-4)


def test_answer_without_a_choice_needs_no_model(generator: PeftGenerator) -> None:
    (turn,) = turns(1)
    asked = [PromptRequest(turn.prompt, None, OneOf((" 4\n",)), 0), PromptRequest(turn.prompt, None, turn.answers, 0)]
    only, other = generator.generate(asked, Sampling(1.0, "\n", 6))
    assert (only.text, only.finish, set(only.log_probs)) == (" 4\n", "stop", {0.0})
    assert other == generator.generate(asked[1:], Sampling(1.0, "\n", 6))[0]


def test_bfloat16_answers_pass_and_fail_a_canary_as_float32_ones(generator: PeftGenerator) -> None:
    """A canary in float32 detects slight changes of a bfloat16 adapter."""
    adapter, reduced = random_adapter(STORE, generator, 2), PeftGenerator(small_base(STORE), BFLOAT16)
    reduced.load(adapter)
    assert check_canary(reduced, adapter) < 1e-5
    generator.load(adapter)
    asked = [PromptRequest(turn.prompt, adapter.name, turn.answers, seed) for seed, turn in enumerate(turns(8))]
    exact, rounded = (one.generate(asked, Sampling(1.0, "\n", 6)) for one in (generator, reduced))
    differences = np.abs([sum(a.log_probs) - sum(b.log_probs) for a, b in zip(exact, rounded, strict=True)])
    assert differences.max() > 1e-4  # answers themselves are drawn in bfloat16
    changed = next(p for name, p in reduced.peft.named_parameters() if f"lora_B.{adapter.name}" in name)
    changed.data += 0.005
    with pytest.raises(ModelMismatch):
        check_canary(reduced, adapter)


IMPORTED = [
    ({"target_modules": ["c_attn"]}, ModelMismatch, "does not fit the base model: .*'c_attn'"),
    ({"alora_invocation_tokens": [1]}, UnusableFile, "no plain LoRA"),
    ({"layer_replication": [[0, 1]]}, UnusableFile, "no plain LoRA"),
    (None, UnusableFile, "cannot be used"),
]


@pytest.mark.parametrize(("changes", "kind", "what"), IMPORTED)
def test_foreign_adapter_that_cannot_be_played_is_refused(
    changes: dict[str, object] | None, kind: type[Exception], what: str, tmp_path: Path
) -> None:
    generator = PeftGenerator(small_base(store := MemoryStore()))
    folder = export_adapter(random_adapter(store, generator, 0), tmp_path, "base")
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps([] if changes is None else config | changes))
    with pytest.raises(kind, match=what):
        import_adapter(store, generator, folder, GAMES[KEY], canary=canary_texts(generator.base))
    (folder / CONFIG).write_text(json.dumps(config))
    assert import_adapter(store, generator, folder, GAMES[KEY], canary=canary_texts(generator.base))
