"""GRPO's loss and gradients against those of TRL."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language_models import small_base, turns
from trl_trainer import trl_trainer

from flyball.app.config import LanguageSettings
from flyball.app.language.base_model import PAD, BaseModel
from flyball.app.language.grpo import Answered, answered_log_probs, grpo_loss
from flyball.app.store import MemoryStore

pytest.importorskip("trl", reason="needs the package trl")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ROWS, LENGTH = 4, 6


def trl_loss(
    folder: Path, base: BaseModel, settings: LanguageSettings, inputs: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, Any]:
    """Return TRL's loss of a batch, and its copy of the model."""
    base.model.save_pretrained(folder / "base")
    trainer = trl_trainer(
        str(folder / "base"),
        base,
        folder,
        end=PAD,
        beta=settings.kl_coef,
        epsilon=settings.clip_epsilon,
        use_bias_correction_kl=False,  # which is a later variant
        loss_type="grpo",
        importance_sampling_level=settings.ratio,
        per_device_train_batch_size=ROWS,
        num_generations=ROWS,
        gradient_checkpointing=False,
        disable_dropout=True,
    )
    trainer.model.eval()
    return trainer._compute_loss(trainer.model, inputs), trainer.model


@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_loss_and_gradients_equal_those_of_trl(tmp_path: Path, ratio: str) -> None:
    base, rng = small_base(MemoryStore()), np.random.default_rng(0)
    settings = LanguageSettings(ratio=ratio, kl_coef=0.1)
    prompt = base.encode(turns(1)[0].prompt)
    ids = rng.integers(1, 300, (ROWS, LENGTH))
    old, reference = (-5.0 + rng.normal(size=(ROWS, LENGTH)) * 0.3 for _ in range(2))
    learned, advantage = rng.random((ROWS, LENGTH)) < 0.7, rng.normal(size=ROWS)
    learned[:, 0] = True
    numbers = {name: torch.tensor(one, dtype=torch.float32) for name, one in (("old", old), ("base", reference))}
    rows = [Answered(prompt, row.tolist(), [()] * LENGTH, [], [], 1.0, 0.0) for row in ids]
    theirs, model = trl_loss(
        tmp_path,
        base,
        settings,
        {
            "prompt_ids": torch.tensor([prompt] * ROWS),
            "prompt_mask": torch.ones(ROWS, len(prompt), dtype=torch.long),
            "completion_ids": torch.tensor(ids),
            "completion_mask": torch.ones(ROWS, LENGTH, dtype=torch.long),
            "tool_mask": torch.tensor(learned).long(),
            "advantages": torch.tensor(advantage, dtype=torch.float32),
            "old_per_token_logps": numbers["old"],
            "ref_per_token_logps": numbers["base"],
        },
    )
    parameters = [one for one in model.parameters() if one.requires_grad]
    expected = torch.autograd.grad(theirs, parameters)
    new, legal = answered_log_probs(model, rows)
    ours, _ = grpo_loss(
        new,
        numbers["old"],
        numbers["base"],
        legal,
        advantage=torch.tensor(advantage, dtype=torch.float32),
        learned=torch.tensor(learned),
        lengths=torch.full((ROWS,), LENGTH),
        settings=settings,
    )
    assert ours.item() / ROWS == pytest.approx(theirs.item(), rel=1e-5)
    for here, there in zip(torch.autograd.grad(ours / ROWS, parameters), expected, strict=True):
        assert torch.allclose(here, there, atol=1e-5 * float(there.abs().max()) + 1e-8)
