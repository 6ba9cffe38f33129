"""A GRPOTrainer of TRL for comparisons."""

from pathlib import Path
from typing import Any

from flyball.app.language.base_model import PAD, BaseModel


def trl_trainer(model: Any, base: BaseModel, folder: Path, *, end: str, **options: Any) -> Any:
    """Return a trainer of a model, with a base model's tokenizer.

    ``model`` is a model, or a folder with one. ``end`` ends its answers.
    """
    from datasets import IterableDataset
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    return GRPOTrainer(
        model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(output_dir=str(folder), use_cpu=True, bf16=False, report_to=[], max_steps=1, **options),
        train_dataset=IterableDataset.from_generator(lambda: iter([{"prompt": "unused"}])),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=base.tokenizer, pad_token=PAD, eos_token=end),
    )
