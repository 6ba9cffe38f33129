"""Training on the results of searches.

Sources: Danihelka et al. 2022; AlphaZero, Silver et al. 2018. The network learns to give each move the probability that
a search gave it, and to foresee how the game ends. Searches are better than the network that guided them, so rows of
earlier models stay worth learning from: each training draws from its fresh shards and from those of earlier trainings
alike.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import partial
from math import isfinite

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim import Adam

from flyball.app.config import CPU, Compute, Precision, SearchSettings
from flyball.app.core import derive_seed
from flyball.app.core.kernels import kernel
from flyball.app.core.legal import Legal, join, legal_counts, listed_places
from flyball.app.engine import Report
from flyball.app.games import Symmetry
from flyball.app.job_specs import ModelResult, TrainSpec, job
from flyball.app.learning.devices import arithmetic, resolve, to_device
from flyball.app.learning.learner import Improvement, improvement, learner
from flyball.app.learning.network import masked_log_probs
from flyball.app.learning.ppo import descend
from flyball.app.learning.ranks import ALONE, Ranks
from flyball.app.learning.torchrun import run_on_ranks
from flyball.app.learning.training import DiscardedUpdate, Training, UnfitData
from flyball.app.store import Checkpoint, Shard


@dataclass(frozen=True, slots=True)
class SearchMetrics:
    """Means over one epoch; losses exclude their coefficients. Policy loss, divergence and entropy are in nats."""

    policy_loss: float  # cross-entropy of the searches' policies under the network
    value_loss: float  # mean squared error of the critic
    divergence: float  # of the network's policy from the searches'
    entropy: float  # of the network's policy
    gradient_norm: float  # of a batch, before clipping
    explained_variance: float  # share of the variance of the critic's targets; 0 where they do not vary


@job
def train(spec: TrainSpec, report: Report) -> ModelResult:
    """Train a model on searches and store the result (a job).

    The same spec gives the same model on one device. Replayed shards that are missing are left out. Raises what
    ``Training``, ``learn`` and ``run_on_ranks`` raise.
    """
    training = Training(spec, report)
    replayed = training.replayed()
    work = partial(
        learn,
        training.base,
        training.shards,
        replayed,
        training.config.search,
        learning_rate=training.learning_rate,
        epochs=training.epochs,
        symmetries=training.game.symmetries,
        seed=training.seed,
    )

    def report_epoch(epoch: int, metrics: SearchMetrics) -> None:
        training.progress(epoch, training.epochs, **asdict(metrics))

    result = run_on_ranks(work, training.compute, report=report_epoch)
    metrics = asdict(result.metrics) | {"replayed_rows": float(sum(shard.rows for shard in replayed))}
    return training.store(result.parameters, result.optimizer, metrics)


def learn(
    base: Checkpoint,
    fresh: Sequence[Shard],
    replayed: Sequence[Shard],
    settings: SearchSettings,
    *,
    learning_rate: float,
    epochs: int,
    symmetries: Sequence[Symmetry],
    seed: int,
    compute: Compute = CPU,
    ranks: Ranks = ALONE,
    report: Callable[[int, SearchMetrics], None],
) -> Improvement[SearchMetrics]:
    """Train a copy of ``base`` on searches.

    Training continues with the optimiser's state of ``base``, if there is one. An epoch has as many samples as there
    are fresh rows, drawn from fresh and replayed shards alike. The same arguments give the same bytes on one kind of
    device. ``report`` receives each epoch's number, from 1, and its metrics. Among ``ranks``, each trains the same
    copy. Raises ``UnfitData`` for rows without searches, ``DiscardedUpdate`` or ``MissingDevice``.
    """
    device, rows = resolve(compute.device), sum(shard.rows for shard in fresh)
    rng = np.random.default_rng(derive_seed(seed, "replay"))
    network, optimizer = learner(base, learning_rate, device)
    for epoch in range(1, epochs + 1):
        samples = draw([*fresh, *replayed], rows, settings, rng)
        parts = [
            _step(network, optimizer, batch, settings, precision=compute.precision, ranks=ranks)
            for batch in batches(samples, settings.batch_size, symmetries if settings.symmetries else (), rng, ranks)
        ]
        means = ranks.total(torch.stack(parts).mean(dim=0))
        policy_loss, value_loss, divergence, entropy, norm = means.tolist()
        variance = float(samples.target.var())
        explained = 1 - value_loss / variance if variance > 1e-12 else 0.0
        metrics = SearchMetrics(policy_loss, value_loss, divergence, entropy, norm, explained)
        if not all(map(isfinite, astuple(metrics))):
            raise DiscardedUpdate(f"A loss or the gradient is not a number: {metrics}.", hint="The base model stands.")
        report(epoch, metrics)
    return improvement(network, optimizer, metrics)


@dataclass(frozen=True, slots=True, eq=False)
class SearchSamples:
    """N positions that were searched; D features, A actions."""

    obs: NDArray[np.generic]  # [N, D]
    mask: Legal  # [N, A] legal actions
    policy: NDArray[np.float16]  # [L] of the legal actions, as in ``Shard.policy``
    target: NDArray[np.float32]  # [N] of the critic

    def __len__(self) -> int:
        return len(self.target)


@dataclass(frozen=True, slots=True, eq=False)
class SearchBatch:
    """B positions to learn from: this rank's share of a minibatch."""

    obs: NDArray[np.generic]  # [B, D]
    mask: NDArray[np.bool_]  # [B, A]
    policy: NDArray[np.float32]  # [B, A]; all 0 in rows that teach no policy
    target: NDArray[np.float32]  # [B]
    weight: float  # share of the minibatch's positions that are in this batch


def draw(shards: Sequence[Shard], count: int, settings: SearchSettings, rng: np.random.Generator) -> SearchSamples:
    """Draw ``count`` rows of all shards with equal probability. Raises ``UnfitData`` for rows without searches."""
    rows = np.array([shard.rows for shard in shards])
    counts = rng.multinomial(count, rows / rows.sum())
    parts = [
        _search_samples(shard, np.sort(rng.integers(0, shard.rows, shard_count)), settings)
        for shard, shard_count in zip(shards, counts.tolist(), strict=True)
        if shard_count
    ]
    return SearchSamples(
        obs=np.concatenate([part.obs for part in parts]),
        mask=join([part.mask for part in parts]),
        policy=np.concatenate([part.policy for part in parts]),
        target=np.concatenate([part.target for part in parts]),
    )


def _search_samples(shard: Shard, rows: NDArray[np.int64], settings: SearchSettings) -> SearchSamples:
    if shard.policy is None:
        raise UnfitData(
            f"A shard of {shard.meta.worker} has no policies of searches.",
            hint="Rows of another backend, or of files, cannot be learned from: play new games by search.",
        )
    return SearchSamples(
        obs=shard.obs[rows],
        mask=shard.mask[rows],
        policy=shard.policy[listed_places(legal_counts(shard.mask), rows)],
        target=critic_targets(shard, settings.root_value_share, settings.value_lambda)[rows],
    )


def critic_targets(shard: Shard, root_value_share: float, value_lambda: float) -> NDArray[np.float32]:
    """Return the critic's target for each row [R] of a shard.

    The target is ``root_value_share`` times the search's value, plus the rest times the lambda-return (Sutton and
    Barto 2018), a weighted mean of the search values at later decisions and of the game's outcome. Later searches
    count, because moves are drawn at random, and an outcome may be due to one bad move. In truncated games the
    target is the search's value alone.
    """
    cut = np.zeros(shard.games, dtype=np.bool_)
    cut[shard.game[shard.truncated]] = True
    later = _lambda_returns(shard, value_lambda)
    mixed = (1 - root_value_share) * later + root_value_share * shard.value
    return np.where(cut[shard.game], shard.value, mixed).astype(np.float32)


def _lambda_returns(shard: Shard, value_lambda: float) -> NDArray[np.float32]:
    """Return the lambda-return after each row [R].

    With two seats the next decision is the game's, whoever makes it. With more it is the seat's own, because a search
    has only the value of the seat to move.
    """
    opponent = -1 if shard.returns.shape[1] == 2 else 0  # factor on values of another seat
    order = np.lexsort((shard.step, shard.game) if opponent else (shard.step, shard.seat, shard.game))
    game, seat, factor = shard.game[order], shard.seat[order], np.zeros(shard.rows, dtype=np.float32)
    factor[:-1] = np.where(game[1:] == game[:-1], np.where(seat[1:] == seat[:-1], 1, opponent), 0)
    outcome, returns = shard.returns[game, seat], np.empty(shard.rows, dtype=np.float32)
    returns[order] = _mix_backwards(shard.value[order], outcome, factor, value_lambda)
    return returns


@kernel
def _mix_backwards(
    value: NDArray[np.float32], outcome: NDArray[np.float32], factor: NDArray[np.float32], value_lambda: float
) -> NDArray[np.float32]:
    """Return the mean of value and return of each next row, times ``factor``; where that is 0, the outcome."""
    returns = outcome.copy()
    for row in range(len(value) - 2, -1, -1):
        if factor[row]:
            mean = (1 - value_lambda) * value[row + 1] + value_lambda * returns[row + 1]
            returns[row] = factor[row] * mean
    return returns


def batches(
    samples: SearchSamples,
    size: int,
    symmetries: Sequence[Symmetry],
    rng: np.random.Generator,
    ranks: Ranks = ALONE,
) -> Iterator[SearchBatch]:
    """Yield all samples, shuffled, in batches of about ``size``.

    Each sample is replaced by itself or a symmetric image, drawn uniformly. Each rank draws for the whole minibatch,
    and yields its share.
    """
    counts, order = legal_counts(samples.mask), rng.permutation(len(samples))
    for minibatch in np.array_split(order, max(1, round(len(samples) / size))):
        share = ranks.share(len(minibatch))
        rows, drawn = minibatch[share], rng.integers(0, len(symmetries) + 1, len(minibatch))[share]
        obs, mask = samples.obs[rows], np.asarray(samples.mask[rows])
        policy = np.zeros(mask.shape, dtype=np.float32)
        policy[mask] = samples.policy[listed_places(counts, rows)]
        for number, symmetry in enumerate(symmetries):
            turned = np.flatnonzero(drawn == number)
            obs[turned] = obs[turned][:, symmetry.observation]
            mask[turned] = mask[turned][:, symmetry.action]
            policy[turned] = policy[turned][:, symmetry.action]
        yield SearchBatch(obs, mask, policy, samples.target[rows], len(rows) / len(minibatch))


def _step(
    network: nn.Module,
    optimizer: Adam,
    batch: SearchBatch,
    settings: SearchSettings,
    *,
    precision: Precision,
    ranks: Ranks,
) -> Tensor:
    """Take an optimiser step; return its metrics.

    The metrics are the first five fields of ``SearchMetrics``, as one tensor. The ranks' losses and metrics add up to
    the minibatch's.
    """
    device = next(network.parameters()).device
    obs, mask, policy, target = (
        to_device(torch.from_numpy(array), device) for array in (batch.obs, batch.mask, batch.policy, batch.target)
    )
    with arithmetic(device, precision):
        logits, values = network(obs)
        log_probs = masked_log_probs(logits, mask)
        searched = ranks.total(policy.sum()).clamp(min=1)  # number of the minibatch's rows that teach a policy
        policy_loss = -(policy * log_probs).sum() / searched
        value_loss = mse_loss(values.float(), target) * batch.weight
    loss = policy_loss + settings.value_coef * value_loss
    norm = descend(network, optimizer, loss, settings.max_grad_norm, ranks)
    with torch.no_grad():
        certainty = (policy * policy.clamp(min=1e-9).log()).sum() / searched
        entropy = -(log_probs.exp() * log_probs * mask).sum() / len(mask) * batch.weight
        return torch.stack((policy_loss, value_loss, policy_loss + certainty, entropy, norm / ranks.size))
