"""Trainings shared by ranks (here threads) equal those of one process."""

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from threading import Barrier
from typing import Any

import pytest
import selfplay_rig as rig
import torch
from hypothesis import given
from hypothesis import strategies as st
from searched_games import CONFIG, GAME, first, played
from selfplay_rig import ignore, put_model, selfplay_spec
from torch import Tensor, nn

from flyball.app.config import PpoSettings
from flyball.app.games import open_table
from flyball.app.learning.learner import Improvement, improve
from flyball.app.learning.network import bytes_to_parameters
from flyball.app.learning.ppo import TrainingDiverged
from flyball.app.learning.ranks import ALONE, Ranks, TooFewRows
from flyball.app.learning.samples import Samples, prepare
from flyball.app.learning.search_training import learn
from flyball.app.play.selfplay import play
from flyball.app.store import Checkpoint, FileStore, Shard, get_checkpoint, get_shard

SIZES = [2, 3]


@dataclass(frozen=True)
class Meeting:
    """A meeting point at which threads exchange tensors."""

    barrier: Barrier
    brought: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ThreadRanks(Ranks):
    """Ranks as threads of one process. They compute the same sums as processes, without the cost of starting them."""

    meeting: Meeting = Meeting(Barrier(1))

    def total(self, tensor: Tensor) -> Tensor:
        self.meeting.brought[self.rank] = tensor.clone()
        self.meeting.barrier.wait(60)
        brought = [self.meeting.brought[rank] for rank in range(self.size)]
        self.meeting.barrier.wait(60)  # because otherwise a quick thread could overwrite its tensor with the next one
        return tensor.copy_(sum(brought[1:], brought[0]))


def in_threads(work: Callable[[Ranks], Any], size: int) -> list[Any]:
    """Return the result of ``work`` on each of ``size`` ranks, or the error that it raises there."""
    meeting = Meeting(Barrier(size))

    def call(rank: int) -> Any:
        try:
            return work(ThreadRanks(rank, size, meeting))
        except Exception as error:  # noqa: BLE001  # the caller compares what the ranks raise
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(call, range(size)))


@given(size=st.integers(1, 9), extra=st.integers(0, 500))
def test_shares_of_ranks_are_an_even_partition(size: int, extra: int) -> None:
    rows = size + extra
    shares = [list(range(rows))[Ranks(rank, size).share(rows)] for rank in range(size)]
    assert [row for share in shares for row in share] == list(range(rows))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(size=st.integers(2, 9), data=st.data())
def test_minibatch_of_fewer_rows_than_ranks_is_refused(size: int, data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, size - 1))
    with pytest.raises(TooFewRows, match=f"{size} processes cannot share a minibatch of {rows} rows"):
        Ranks(0, size).share(rows)


@dataclass(frozen=True)
class Lesson:
    """Samples of a PPO training."""

    base: Checkpoint
    samples: Samples

    def learn(self, settings: PpoSettings, ranks: Ranks) -> tuple[Improvement, list[int]]:
        epochs: list[int] = []
        result = improve(
            self.base, self.samples, settings, seed=1, ranks=ranks, report=lambda epoch, _metrics: epochs.append(epoch)
        )
        return result, epochs


SETTINGS = PpoSettings(learning_rate=1e-3, batch_size=64, epochs=2, entropy_coef=0.01, target_kl=10, max_kl=10)


@pytest.fixture(scope="module")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> Lesson:
    root = tmp_path_factory.mktemp("store")
    model = put_model(root, scale=2)
    shard = get_shard(FileStore(root), play(selfplay_spec(root, model, games=20), ignore)["shard"])
    samples = prepare([shard], SETTINGS, open_table(rig.CONFIG, 0).spec.symmetries, seed=1)
    return Lesson(get_checkpoint(FileStore(root), model), samples)


def assert_near(one: Improvement, other: Improvement) -> None:
    """Assert that parameters, optimiser, metrics and gradient norms are nearly equal."""
    for files in ((one.parameters, other.parameters), (one.optimizer, other.optimizer)):
        tensors = [bytes_to_parameters(file) for file in files]
        for name, tensor in tensors[0].items():
            torch.testing.assert_close(tensors[1][name], tensor, rtol=1e-4, atol=2e-6)
    assert asdict(other.metrics) == pytest.approx(asdict(one.metrics), rel=1e-4, abs=1e-6)
    assert other.gradients == pytest.approx(one.gradients, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", [192, 293])
def test_ppo_by_ranks_equals_one_process(lesson: Lesson, size: int, rows: int) -> None:
    """Ranks share minibatches of 58 and 59 rows unevenly. Such minibatches come from 293 rows."""
    some = replace(lesson, samples=lesson.samples.part(slice(rows)))
    assert len(some.samples) == rows
    alone, _ = some.learn(SETTINGS, ALONE)
    shared = [result for result, _ in in_threads(partial(some.learn, SETTINGS), size)]
    assert_near(alone, shared[0])
    assert len({result.parameters for result in shared}) == len({result.optimizer for result in shared}) == 1
    assert all(result.metrics == shared[0].metrics for result in shared)


def by_search(fresh: Shard, replayed: Sequence[Shard], ranks: Ranks) -> Improvement:
    how = {"learning_rate": 1e-3, "epochs": 2, "symmetries": GAME.symmetries, "seed": 5, "ranks": ranks}
    return learn(first(), [fresh], replayed, CONFIG.search, **how, report=lambda _epoch, _metrics: None)


@pytest.fixture(scope="module")
def searched() -> Shard:
    return played(1)


@pytest.mark.parametrize("size", SIZES)
def test_search_by_ranks_equals_one_process(searched: Shard, size: int) -> None:
    work = partial(by_search, searched, [played(2, games=20)])
    shared = in_threads(work, size)
    assert_near(work(ALONE), shared[0])
    assert len({result.parameters for result in shared}) == 1
    assert all(result.metrics == shared[0].metrics for result in shared)


def test_rows_without_policy_weigh_as_in_one_process(searched: Shard) -> None:
    """Rows with a policy are spread unevenly over the ranks."""
    policy = searched.policy.copy()
    policy[: len(policy) // 3] = 0
    work = partial(by_search, replace(searched, policy=policy), [])
    assert_near(work(ALONE), in_threads(work, 2)[0])


def test_ranks_stop_and_diverge_as_one_process_does(lesson: Lesson) -> None:
    settings = SETTINGS.replace(epochs=30, target_kl=0.01)
    _, epochs = lesson.learn(settings, ALONE)
    assert 1 < len(epochs) < 30
    for _, own in in_threads(partial(lesson.learn, settings), 3):
        assert own == epochs
    settings = SETTINGS.replace(max_kl=1e-9)
    with pytest.raises(TrainingDiverged) as alone:
        lesson.learn(settings, ALONE)
    errors = in_threads(partial(lesson.learn, settings), 2)
    assert all(isinstance(error, TrainingDiverged) for error in errors)
    assert asdict(errors[0].metrics) == pytest.approx(asdict(alone.value.metrics), rel=1e-4, abs=1e-6)
    assert errors[0].metrics == errors[1].metrics
    received = pickle.loads(pickle.dumps(errors[0]))
    assert (type(received), str(received), received.hint) == (TrainingDiverged, str(errors[0]), errors[0].hint)
    assert received.metrics == errors[0].metrics


class Uneven(nn.Module):
    """A network whose three parameters are used always, sometimes and never."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes, self.never = (nn.Parameter(torch.ones(2)) for _ in range(3))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        weight = self.always * self.sometimes if (rows > 0).any() else self.always
        return (rows * weight).sum()


def test_gradients_add_up_where_ranks_use_different_parameters() -> None:
    rows = torch.tensor([[1.0, 2.0], [-3.0, -4.0]])

    def work(ranks: Ranks) -> list[list[float] | None]:
        network = Uneven()
        network(rows[ranks.share(2)]).backward()
        ranks.total_gradients(network)
        return [None if p.grad is None else p.grad.tolist() for p in network.parameters()]

    assert in_threads(work, 2) == [[[-2.0, -2.0], [1.0, 2.0], None]] * 2
    assert in_threads(work, 1) == [[[-2.0, -2.0], [-2.0, -2.0], None]], "one process has both rows in one call"
