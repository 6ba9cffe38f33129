"""Log-probabilities of answers, the same in drawing, scoring and training.

A batch is [shared preamble] [padding, prompt] [answer, padding]. The preamble's keys and values are computed once and
repeated for all rows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Ids = Sequence[int]


def common_prefix(prompts: Sequence[Ids]) -> int:
    """Return the number of tokens that all prompts begin with. Each prompt keeps at least one token of its own."""
    low, high = min(map(list, prompts)), max(map(list, prompts))  # the extremes in lexicographic order differ earliest
    length = next((index for index, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return min(length, min(map(len, prompts)) - 1)


def padded(prompts: Sequence[Ids], prefix: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, mask and positions of prompts, padded on the left.

    The ids and positions are [B, W], without the first ``prefix`` tokens. The mask is [B, prefix + W].
    """
    width = max(map(len, prompts)) - prefix
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.ones(len(prompts), prefix + width, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        own = torch.tensor(prompt[prefix:], dtype=torch.long)
        ids[row, width - len(own) :] = own
        mask[row, prefix : prefix + width - len(own)] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)[:, prefix:]
    return ids.to(device), mask.to(device), positions.to(device)


def prefix_cache(model: Any, prefix: Ids, rows: int, device: torch.device) -> Any:
    """Return the keys and values of a preamble, repeated for ``rows``. Returns None for an empty preamble."""
    if not prefix:
        return None
    ids = torch.tensor([list(prefix)], device=device)
    cache = model(input_ids=ids, use_cache=True, logits_to_keep=1).cache
    cache.batch_repeat_interleave(rows)
    return cache


def answer_logits(model: Any, prompts: Sequence[Ids], answers: Sequence[Ids], *, share_prefix: bool = True) -> Tensor:
    """Return the logits [B, T, V] of the tokens of answers.

    The longest answer has T tokens. Without ``share_prefix`` the preamble is computed for each row, because
    checkpointed layers keep no keys and values.
    """
    device = next(model.parameters()).device
    prefix = common_prefix(prompts) if share_prefix else 0
    ids, mask, positions = padded(prompts, prefix, device)
    longest = max(map(len, answers))
    tail = torch.zeros(len(answers), longest, dtype=torch.long)
    for row, answer in enumerate(answers):
        tail[row, : len(answer)] = torch.tensor(answer, dtype=torch.long)
    tail = tail.to(device)
    after = torch.arange(1, longest + 1, device=device)
    logits = model(
        input_ids=torch.cat([ids, tail], 1),
        attention_mask=torch.cat([mask, torch.ones_like(tail)], 1),
        position_ids=torch.cat([positions, positions[:, -1:] + after], 1),
        cache=prefix_cache(model, prompts[0][:prefix], len(prompts), device),
        use_cache=bool(prefix),
        logits_to_keep=longest + 1,
    ).logits
    return torch.as_tensor(logits[:, :-1].float())


def log_probs(
    logits: Tensor, answers: Sequence[Ids], allowed: Sequence[Sequence[Ids]], temperatures: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of answers' tokens, and of drawing an allowed token.

    Both are [B, T]. The former are among the allowed tokens, the latter among all. Both are 0 after an answer's end.

    Args:
        logits: [B, T, V]; those of a row are divided by its temperature.
        answers: token ids of B answers, the longest of which has T.
        allowed: legal tokens at each place of each answer; empty: any token is.
        temperatures: [B].
    """
    chosen = torch.zeros(logits.shape[:2], dtype=torch.long)
    real = torch.zeros(logits.shape[:2], dtype=torch.bool)
    barred = torch.zeros(logits.shape, dtype=torch.bool)
    for row, (answer, legal) in enumerate(zip(answers, allowed, strict=True)):
        chosen[row, : len(answer)] = torch.tensor(answer, dtype=torch.long)
        real[row, : len(answer)] = True
        for column, tokens in enumerate(legal):
            if len(tokens):
                barred[row, column] = True
                barred[row, column, torch.tensor(tokens, dtype=torch.long)] = False
    heat = torch.tensor(temperatures, device=logits.device)[:, None, None]
    scaled, real = logits / heat, real.to(logits.device)
    chosen_logits = scaled.gather(-1, chosen.to(logits.device)[..., None])[..., 0]
    among = scaled.masked_fill(barred.to(logits.device), float("-inf")).logsumexp(-1)
    return (chosen_logits - among).masked_fill(~real, 0.0), (among - scaled.logsumexp(-1)).masked_fill(~real, 0.0)
