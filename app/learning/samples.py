"""Samples: an update's tensors, made from shards, with advantages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flyball.app.config import PpoSettings
from flyball.app.core import FlyballError, derive_seed
from flyball.app.core.legal import LegalActions, join
from flyball.app.games import Symmetry
from flyball.app.learning.devices import to_device
from flyball.app.store import Shard


class UnfinishedEpisode(FlyballError, code="bad_data"):
    """An episode whose last row is neither done nor truncated. The value after that row is unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Tensors of N decisions."""

    obs: Tensor  # [N, D] uint8 or float32
    mask: Tensor | LegalActions  # [N, A] legal actions; lists stay in main memory
    action: Tensor  # [N, 1] int64
    temperature: Tensor  # [N, 1] divisor of the logits when the action was drawn
    log_prob: Tensor  # [N] of the action, under the policy that played
    value: Tensor  # [N] by the critic that played
    advantage: Tensor  # [N] of mean 0 and deviation 1 if normalised
    target: Tensor  # [N] the critic's training targets

    def __len__(self) -> int:
        return len(self.action)

    def to(self, device: torch.device) -> Self:
        """Return the samples on ``device``.

        Lists of legal actions stay in main memory, because each batch makes a mask of its own.
        """
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {name: to_device(column, device) for name, column in columns.items() if isinstance(column, Tensor)}
        return replace(self, **moved)

    def part(self, rows: slice) -> Self:
        """Return some of the samples, as views."""
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def minibatches(samples: Samples, size: int, generator: torch.Generator) -> Iterator[Samples]:
    """Return all samples, shuffled, in batches of about ``size``. A seed gives one order on every device."""
    batches = max(1, round(len(samples) / size))
    order = torch.randperm(len(samples), generator=generator)
    cuts = [len(samples) * batch // batches for batch in range(1, batches)]
    columns = (getattr(samples, field.name) for field in fields(samples))
    shuffled = (_shuffled_batches(column, order, cuts) for column in columns)
    return (Samples(*batch) for batch in zip(*shuffled, strict=True))


def _shuffled_batches(
    column: Tensor | LegalActions, order: Tensor, cuts: Sequence[int]
) -> Sequence[Tensor | LegalActions]:
    """Return a column's rows in ``order``, cut into batches."""
    # All rows are shuffled at once, so that batches are views; ``column[order]`` would copy by elements, not by rows.
    if isinstance(column, Tensor):
        return column.index_select(0, order.to(column.device)).tensor_split(cuts)
    rows = column[order.numpy()]
    return [rows[begin:end] for begin, end in pairwise((0, *cuts, len(rows)))]


def advantages(rows: Shard, gamma: float, gae_lambda: float) -> NDArray[np.float32]:
    """Return the advantage of each row [R], estimated by GAE.

    GAE is generalised advantage estimation (Schulman et al. 2016). An episode is one seat's rows of one game, in the
    order of its steps. The value after a row is 0 if the row is done, even if it is truncated too; ``bootstrap`` if it
    is truncated; otherwise the value of the seat's next row. Raises ``UnfinishedEpisode``.
    """
    order = np.lexsort((rows.step, rows.seat, rows.game))
    ends = (rows.done | rows.truncated)[order]
    _check_ends(rows, order, ends)
    value = rows.value[order].astype(np.float64)
    following = np.where(ends, np.where(rows.done, 0.0, rows.bootstrap)[order], np.append(value[1:], 0.0))
    estimate = rows.reward[order] + gamma * following - value
    for indices in _layers(ends)[1:]:
        estimate[indices] += gamma * gae_lambda * estimate[indices + 1]
    result = np.empty(len(order), dtype=np.float32)
    result[order] = estimate
    return result


def _check_ends(rows: Shard, order: NDArray[np.int64], ends: NDArray[np.bool_]) -> None:
    game, seat = rows.game[order], rows.seat[order]
    last = np.ones(len(order), dtype=np.bool_)
    last[:-1] = (game[1:] != game[:-1]) | (seat[1:] != seat[:-1])
    open_ends = np.flatnonzero(last & ~ends)
    if len(open_ends):
        first = open_ends[0]
        raise UnfinishedEpisode(
            f"{len(open_ends)} episodes do not end, the first being game {game[first]}, seat {seat[first]}.",
            hint="Mark the last row of every seat as done, or as truncated with the critic's value of what follows.",
        )


def _layers(ends: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Group sorted rows by their distance from the episode's end. The nearest rows come first."""
    if not len(ends):
        return []
    positions = np.arange(len(ends))
    last = np.flatnonzero(ends)
    distance = last[np.searchsorted(last, positions)] - positions
    by_distance = np.argsort(distance, kind="stable")
    return np.split(by_distance, np.cumsum(np.bincount(distance))[:-1])


def make_samples(shards: Sequence[Shard], gamma: float, gae_lambda: float, *, normalise: bool = True) -> Samples:
    """Join the rows of all shards. Raises ``UnfinishedEpisode``.

    Advantages are estimated within each shard; ``normalise`` gives them mean 0 and deviation 1. With a lambda of 1 the
    targets are the returns.
    """
    advantage = np.concatenate([advantages(shard, gamma, gae_lambda) for shard in shards])
    scaled = np.asarray((advantage - advantage.mean()) / (advantage.std() + 1e-8), dtype=np.float32)
    value = np.concatenate([shard.value for shard in shards])
    temperature = [np.full((shard.rows, 1), shard.meta.temperature, dtype=np.float32) for shard in shards]
    mask = join([shard.mask for shard in shards])
    return Samples(
        obs=torch.from_numpy(np.concatenate([shard.obs for shard in shards])),
        mask=mask if isinstance(mask, LegalActions) else torch.from_numpy(mask),
        action=torch.from_numpy(np.concatenate([shard.action for shard in shards]).astype(np.int64)[:, None]),
        temperature=torch.from_numpy(np.concatenate(temperature)),
        log_prob=torch.from_numpy(np.concatenate([shard.log_prob for shard in shards])),
        value=torch.from_numpy(value),
        advantage=torch.from_numpy(scaled if normalise else advantage),
        target=torch.from_numpy(advantage + value),
    )


def explained_variance(samples: Samples) -> float | None:
    """Return the share of the targets' variance that the old values explain; None if the targets do not vary."""
    variance = float(samples.target.var(correction=0))
    if variance < 1e-12:
        return None
    return 1 - float((samples.target - samples.value).var(correction=0)) / variance


def oriented(samples: Samples, symmetries: Sequence[Symmetry], generator: torch.Generator) -> Samples:
    """Replace each sample by a random image of itself.

    The image is drawn uniformly from the sample itself and its symmetric images. An image keeps the log-probability of
    the action as it was played, because the action was drawn in the original. PPO's ratio is then the importance weight
    of the image, and its clip lets the policy approach an image until it treats the image like the original. So the KL
    divergence of an update includes the policy's asymmetry. The policy's own log-probability of the image would hide
    the asymmetry, and makes policies collapse (ADR-027).
    """
    if not symmetries:
        return samples
    drawn = torch.randint(len(symmetries) + 1, (len(samples),), generator=generator)
    obs, mask, action = samples.obs.clone(), samples.mask, samples.action.clone()
    if isinstance(mask, Tensor):
        mask = mask.clone()
    for number, symmetry in enumerate(symmetries):
        rows = (drawn == number).nonzero().squeeze(1)
        obs[rows] = obs[rows][:, torch.from_numpy(symmetry.observation)]
        if isinstance(mask, Tensor):
            mask[rows] = mask[rows][:, torch.from_numpy(symmetry.action)]
        else:
            mask = mask.renamed(rows.numpy(), symmetry.image)
        action[rows] = torch.from_numpy(symmetry.image)[action[rows]]
    return replace(samples, obs=obs, mask=mask, action=action)


def prepare(
    shards: Sequence[Shard],
    settings: PpoSettings,
    symmetries: Sequence[Symmetry],
    seed: int,
    *,
    normalise: bool = True,
) -> Samples:
    """Return the shards' samples with advantages, as symmetric images if set. Raises ``UnfinishedEpisode``."""
    samples = make_samples(shards, settings.gamma, settings.gae_lambda, normalise=normalise)
    if not settings.symmetries:
        return samples
    return oriented(samples, symmetries, torch.Generator().manual_seed(derive_seed(seed, "symmetries")))
