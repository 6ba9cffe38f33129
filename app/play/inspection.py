"""The quality job: check a shard and score it for training.

The job checks a shard's origin, plays a sample of its games again, and looks for copies of earlier shards.

**Repetition.** Where a game is small or its players are confident, games repeat by chance, so a count of repeated games
shows nothing. An improbable game that repeats is stronger evidence than a probable one. Each game gives a likelihood
ratio of "copied" against "newly played". A newly played game has the probability p of its recorded moves under the
policy that played. Two kinds of copying are considered, each of which copies half of the games:

- from a bag: a random game of the M in all earlier shards, n of which equal this one: 1/2 + 1/2 (n / M) / p;
- in place: the game at the same position in one earlier shard: 1/2 + 1/2 / p where the two are equal, else 1/2.

The evidence is the logarithm of their mixture: half from a bag, half in place, with equal weights for the shards. For a
newly played shard the expected ratio is at most 1, whatever the earlier shards hold. So the ratio exceeds x with
probability at most 1/x (Markov's inequality; V. Vovk and R. Wang, "E-values: Calibration, combination and
applications", 2021). A shard does not record the probabilities of chance and of opponents. They count as 1, which makes
p too large and the evidence too small. A move that a search found counts with its probability given part of the
search's noise: the expected ratio is at most 1 given any part of it, and therefore also over all of it.

**Quality** is the weighted geometric mean of components in [0, 1], because one component near 0 makes a shard useless,
which an arithmetic mean would hide:

- ``diversity``: share of distinct positions among the rows; a share of 1/3 or more scores 1.
- ``originality``: share of distinct games (whole histories); a share of 1/2 or more scores 1.

  Small games cannot help repeating themselves, so both shares are of no more than can be reached: the number of games
  and positions of a tree that branches like the games played (D. E. Knuth, "Estimating the efficiency of backtrack
  programs", 1975). Chance and opponents are left out, which makes the tree too small, so that repeats in small games
  are excused. In a large game even a collapsed policy has many legal actions along its way, so its repeats are not.

- ``completion``: share of games that were not truncated; at least 1/10, because a truncated game still teaches through
  the critic.
- ``balance``: entropy of the finished games' results (each seat's wins, and draws). The entropy of a 90:10 split or
  more scores 1, as does a shard without finished games. At least 1/10, because perfect players of a drawn game
  always draw.
- ``entropy``: mean -log probability of the actions, divided by that of uniform play; 1/10 or more scores 1.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from math import log, prod

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flyball.app.config import FrozenModel
from flyball.app.core import FlyballError, ShardKey
from flyball.app.core.legal import legal_counts
from flyball.app.engine import Report
from flyball.app.games import Checker, GameRecord, checker_for, open_table
from flyball.app.job_specs import InspectionResult, InspectionSpec, job
from flyball.app.play.match_statistics import seat_wins
from flyball.app.store import BlobStore, DamagedBlob, MissingBlob, Shard, ShardMeta, game_seed, get_shard, open_store

Games = Sequence[bytes]  # a shard's games in order, each as the bytes of its history

CERTAIN = -log(1e-9)  # nats; a shard with this much evidence counts as a copy: at most 1e-9 false alarms
COMPARED = 16
"""A shard is compared with so many of the latest shards; ``flyball.daemons.quality_monitor`` keeps as many."""

WEIGHTS = {"diversity": 0.3, "originality": 0.2, "completion": 0.2, "balance": 0.15, "entropy": 0.15}
ENOUGH_DIVERSITY, ENOUGH_ORIGINALITY, ENOUGH_ENTROPY, FLOOR = 1 / 3, 1 / 2, 1 / 10, 1 / 10
MOST_LOG = 40.0  # log of more games than any shard has; a larger tree counts as one of this size
ENOUGH_BALANCE = -(0.9 * log(0.9) + 0.1 * log(0.1))


class RepeatedShard(FlyballError, code="unfit_shard"):
    """A shard whose games were delivered before."""


class ForeignShard(FlyballError, code="unfit_shard"):
    """A shard whose configuration, rules or model differ from its request's."""


class ShardStatistics(FrozenModel):
    """Counts and means over a shard."""

    rows: int = Field(ge=1)
    distinct_positions: int = Field(ge=1)
    games: int = Field(ge=1)
    distinct_games: int = Field(ge=1)
    truncated_games: int = Field(ge=0)
    wins: tuple[int, ...] = Field(description="games won by each seat alone")
    drawn_games: int = Field(ge=0, description="games with no single winner, truncated ones not counted")
    surprise: float = Field(ge=0, description="mean of -log probability of the action taken, nats")
    freedom: float = Field(gt=0, description="mean of the log of the number of legal actions, nats")
    mean_length: float = Field(ge=0, description="decisions a game")
    reachable_games: float = Field(ge=1, description="estimated from the numbers of legal actions")
    reachable_positions: float = Field(ge=1, description="likewise, told apart by a seat's own actions before")


class QualityScore(FrozenModel):
    """A shard's quality."""

    score: float = Field(ge=0, le=1)
    components: dict[str, float]


class ShardInspection(InspectionResult):
    """Result of an inspection, with what its score depends on."""

    statistics: ShardStatistics


@job
def inspect(spec: InspectionSpec, report: Report) -> ShardInspection:
    """Delete the spent shards, then inspect one (a job).

    Raises ``MissingBlob``, ``DamagedBlob`` for a changed bit, ``ForeignShard`` or ``RepeatedShard``.
    """
    return inspect_in(opened_store(spec), spec, report)


def inspect_in(store: BlobStore, spec: InspectionSpec, report: Report) -> ShardInspection:
    """Inspect a shard of ``store``. Raises as ``inspect``. The store named in the spec is not opened."""
    check_delivered_once(spec)
    shard = get_shard(store, spec.shard)
    check_origin(spec, shard.meta, open_table(spec.config, 1).spec.rules_version)
    log_probs = np.bincount(shard.game, weights=shard.log_prob, minlength=shard.games).astype(np.float64)
    check_repetition(store, spec, _games(shard), log_probs, _games_of)
    counted = shard_statistics(shard)
    report({"rows": counted.rows, "games": counted.games})
    checker = checker_for(spec.config)
    sample = sample_of(spec, shard.games)
    return ShardInspection(
        **dict(quality_score(counted)),
        statistics=counted,
        against=checker.against,
        checked=len(sample),
        failures=tuple(_differences(shard, checker, sample)),
    )


def opened_store(spec: InspectionSpec) -> BlobStore:
    """Open the store, and delete the spent shards."""
    store = open_store(spec.store)
    for spent in spec.discard:
        store.delete(spent)
    return store


def check_delivered_once(spec: InspectionSpec) -> None:
    """Raise ``RepeatedShard`` if the shard is one of the earlier shards itself."""
    if spec.shard in spec.earlier:
        raise RepeatedShard(
            f"Shard {spec.shard} was delivered before, for another request.",
            hint="Find out why a worker answered two requests with one shard, or who published it again.",
        )


def check_origin(spec: InspectionSpec, meta: ShardMeta, rules: str) -> None:
    """Raise ``ForeignShard`` if configuration, rules or model are not those of the request."""
    claimed, expected = (meta.config_key, meta.rules_version, meta.model), (spec.config.key, rules, spec.model)
    if claimed != expected:
        claim, request = (f"{key} under {version} by {model[:8]}" for key, version, model in (claimed, expected))
        raise ForeignShard(
            f"Shard {spec.shard} is of {claim}, not of {request}.",
            hint="Leave it out, and play fresh games under the rules installed here.",
        )


def check_repetition(
    store: BlobStore,
    spec: InspectionSpec,
    games: Games,
    log_probs: NDArray[np.float64],
    games_of: Callable[[BlobStore, ShardKey], Games],
) -> None:
    """Raise ``RepeatedShard`` if games are a copy of earlier shards' games.

    ``log_probs`` as in ``repetition_evidence``; ``games_of`` reads the games of an earlier shard. Missing and damaged
    earlier shards are skipped.
    """
    before = list[Games]()
    for key in spec.earlier[-COMPARED:]:
        with suppress(MissingBlob, DamagedBlob):
            before.append(games_of(store, key))
    evidence = repetition_evidence(games, log_probs, before)
    if evidence >= CERTAIN:
        repeated = {game for earlier in before for game in earlier}
        raise RepeatedShard(
            f"{sum(game in repeated for game in games)} of {len(games)} games are those of earlier shards, too many to "
            f"be chance (evidence {evidence:.0f} nats, {CERTAIN:.0f} is certain).",
            hint="Find out why a worker plays the same games again: do its requests have the same seed?",
        )


def sample_of(spec: InspectionSpec, games: int) -> list[int]:
    """Return the games that are played again, drawn from a shard of so many games."""
    drawn: list[int] = np.random.default_rng(spec.seed).permutation(games)[: spec.sample_games].tolist()
    return sorted(drawn)


def repetition_evidence(games: Games, log_probs: NDArray[np.float64], earlier: Sequence[Games]) -> float:
    """Return the evidence in nats that ``games`` are copied from ``earlier`` shards.

    ``log_probs`` [G] are the games' log-probabilities under the policy that played them, nats. Without earlier games
    the evidence is 0.
    """
    counts = Counter(game for shard in earlier for game in shard)
    if not counts:
        return 0.0
    total = counts.total()

    def evidence(copied: Sequence[float]) -> float:
        """Return the log of the product over all games of 1/2 + 1/2 ``copied`` / p, for one kind of copying."""
        with np.errstate(divide="ignore"):  # the log of 0 is -inf, as it should be
            surplus = np.log(np.array(copied, dtype=np.float64)) - log_probs
        return float((np.logaddexp(0.0, surplus) - log(2)).sum())

    bag = evidence([counts[game] / total for game in games])
    padded = [[*shard, *[b""] * len(games)] for shard in earlier]
    in_order = [evidence([game == copied for game, copied in zip(games, shard, strict=False)]) for shard in padded]
    weights = [log(1 / 2)] + [log(1 / 2 / len(earlier))] * len(earlier)
    return float(np.logaddexp.reduce(np.add(weights, [bag, *in_order])))


def shard_statistics(shard: Shard) -> ShardStatistics:
    """Return the statistics that a shard's quality depends on."""
    cut = np.zeros(shard.games, dtype=np.bool_)
    cut[shard.game[shard.truncated]] = True
    wins, drawn = seat_wins(shard.returns, cut)
    freedom = np.log(legal_counts(shard.mask))
    games, positions = _reachable(shard, freedom)
    return ShardStatistics(
        rows=shard.rows,
        distinct_positions=len({row.tobytes() for row in shard.obs}),
        games=shard.games,
        distinct_games=len(set(_games(shard))),
        truncated_games=int(cut.sum()),
        wins=wins,
        drawn_games=drawn,
        surprise=max(0.0, float(-shard.log_prob.mean())),
        freedom=float(freedom.mean()),
        mean_length=float(np.bincount(shard.game, minlength=shard.games).mean()),
        reachable_games=games,
        reachable_positions=positions,
    )


def _reachable(shard: Shard, freedom: NDArray[np.float64]) -> tuple[float, float]:
    """Estimate how many games and positions can be reached.

    ``freedom`` [R] is the log of each row's number of legal actions. A game of decisions among c1, c2 … ck actions
    stands for a tree of c1 c2 … ck games. A seat that has decided among c1, c2 … ci actions can be in as many
    positions.
    """
    rows = np.arange(shard.rows)
    first = np.ones(shard.rows, dtype=np.bool_)
    first[1:] = (shard.game[1:] != shard.game[:-1]) | (shard.seat[1:] != shard.seat[:-1])
    before = np.cumsum(freedom) - freedom
    begun = np.maximum.accumulate(np.where(first, rows, 0))
    own = np.maximum(0, before - before[begun])  # of the seat's earlier decisions
    played = np.bincount(shard.game, minlength=shard.games) > 0
    game_freedom = np.bincount(shard.game, weights=freedom, minlength=shard.games)[played]
    positions = np.bincount(shard.game, weights=np.exp(np.minimum(own, MOST_LOG)), minlength=shard.games)[played]
    return float(np.exp(np.minimum(game_freedom, MOST_LOG)).mean()), float(positions.mean())


def quality_score(counted: ShardStatistics) -> QualityScore:
    """Score a shard from its statistics. See the module's docstring for the formula."""
    results = [count for count in (*counted.wins, counted.drawn_games) if count]
    finished = sum(results)
    balance = -sum(n / finished * log(n / finished) for n in results) if finished else ENOUGH_BALANCE
    components = {
        "diversity": min(
            1.0, counted.distinct_positions / min(counted.rows, counted.reachable_positions) / ENOUGH_DIVERSITY
        ),
        "originality": min(
            1.0, counted.distinct_games / min(counted.games, counted.reachable_games) / ENOUGH_ORIGINALITY
        ),
        "completion": max(FLOOR, 1 - counted.truncated_games / counted.games),
        "balance": max(FLOOR, min(1.0, balance / ENOUGH_BALANCE)),
        "entropy": min(1.0, counted.surprise / counted.freedom / ENOUGH_ENTROPY),
    }
    score = prod(components[name] ** weight for name, weight in WEIGHTS.items())
    return QualityScore(score=score, components=components)


def history(shard: Shard, game: int) -> NDArray[np.int32]:
    """Return all actions of one game of a shard."""
    return shard.history[shard.history_offsets[game] : shard.history_offsets[game + 1]]


@lru_cache(maxsize=256)  # enough for 15 configurations; 512 games of connect four take 80 kB
def _games_of(store: BlobStore, key: ShardKey) -> list[bytes]:
    """Return a stored shard's games, cached.

    Reading 16 shards takes longer than the rest of an inspection. A shard's name is its content hash, so its games
    never change.
    """
    return _games(get_shard(store, key))


def _games(shard: Shard) -> list[bytes]:
    return [history(shard, game).tobytes() for game in range(shard.games)]


def game_record(shard: Shard, game: int) -> GameRecord:
    """Return one game of a shard, for the parity check."""
    rows = np.flatnonzero(shard.game == game)
    return GameRecord(
        history=history(shard, game).tolist(),
        returns=shard.returns[game],
        truncated=bool(shard.truncated[rows].any()),
        step=shard.step[rows],
        seat=shard.seat[rows],
        action=shard.action[rows],
        obs=shard.obs[rows],
        mask=np.asarray(shard.mask[rows]),
        seed=game_seed(shard.meta.seed, game),
    )


def _differences(shard: Shard, checker: Checker, games: Iterable[int]) -> Iterator[str]:
    for game in games:
        failures = [*checker.failures(game_record(shard, game)), *_rewards(shard, game)]
        if failures:
            yield f"game {game}: {failures[0]}"


def _rewards(shard: Shard, game: int) -> Iterator[str]:
    """Yield a failure for each seat whose rewards miss its outcome. A seat's rewards must sum to its outcome."""
    for seat in np.unique(shard.seat[shard.game == game]).tolist():
        rows = (shard.game == game) & (shard.seat == seat)
        total, outcome = float(shard.reward[rows].sum()), float(shard.returns[game, seat])
        if not np.isclose(total, outcome, rtol=0, atol=1e-5):
            yield f"seat {seat} was rewarded {total}, its outcome is {outcome}"
