"""Self-play, update and evaluation on a GPU against one CPU thread.

The update is also compared with CleanRL's loop on the GPU. The game is connect four. Rates are by wall time, because a
GPU's work is no processor time. Each rate is the best of some rounds, of which the first warms up. Run with
``pytest tests/benchmarks/bench_devices.py -m "benchmark and gpu" -s``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import pytest
import torch
from cleanrl_loop import cleanrl_epoch
from selfplay_rig import CONFIG, ignore, put_model, selfplay_spec
from torch import nn

from flyball.app.config import CPU, MLP, Compute, GameConfig, NetworkSettings, PpoSettings, SearchSettings
from flyball.app.core import ModelHash
from flyball.app.games import open_table
from flyball.app.learning.devices import games_at_once, resolve
from flyball.app.learning.learner import load_adam
from flyball.app.learning.network import init_policy, load_network
from flyball.app.learning.ppo import update
from flyball.app.learning.samples import Samples, make_samples
from flyball.app.play.matches import IN_FLIGHT, MatchPlan, play_match
from flyball.app.play.players import PLAYERS, RandomPlayer
from flyball.app.play.selfplay import play, play_by_search
from flyball.app.store import FileStore, get_shard

pytestmark = [pytest.mark.benchmark, pytest.mark.gpu, pytest.mark.timeout(1800)]
NETWORKS = {"mlp 256, 128": NetworkSettings(), "tower 8 x 128": NetworkSettings(kind="tower", blocks=8, channels=128)}
GPU, HALF = Compute(device="cuda"), Compute(device="cuda", precision="bfloat16")
PLAYED = {"cpu": 64, "cuda": 8192}  # games: enough for both to be busy, few enough for a CPU
SETTINGS = PpoSettings(batch_size=1024, epochs=1, learning_rate=1e-4, target_kl=10, max_kl=10)
ROWS_ON_CPU = 2048  # of an update: two batches
SEARCHING = {"cpu": 64, "cuda": 4096}  # games by search
ROUNDS = 3
Played = tuple[GameConfig, Path, ModelHash]


@pytest.fixture(params=NETWORKS)
def played(request: pytest.FixtureRequest, tmp_path: Path) -> Played:
    torch.set_num_threads(1)
    config = CONFIG.replace(network=NETWORKS[request.param])
    return config, tmp_path, put_model(tmp_path, config)


def name_of(network: NetworkSettings) -> str:
    """Return a network's name among ``NETWORKS``."""
    return next(name for name, one in NETWORKS.items() if one == network)


def best(work: Callable[[], int]) -> float:
    """Return the highest rate of some rounds of ``work``. ``work`` returns the amount that it did."""
    rates = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        began = perf_counter()
        done = work()
        torch.cuda.synchronize()
        rates.append(done / (perf_counter() - began))
    return max(rates[1:])


def compare(work: str, unit: str, network: NetworkSettings, rate: Callable[[Compute], float]) -> None:
    """Print rates on a CPU and a GPU.

    A tower has to gain from the GPU. A perceptron's passes may be too small for a gain.
    """
    name = name_of(network)
    here, there, half = (rate(compute) for compute in (CPU, GPU, HALF))
    times = max(there, half) / here
    print(  # noqa: T201
        f"\n{work}, {name}: CPU {here:,.0f} {unit}/s, GPU {there:,.0f}, in bfloat16 {half:,.0f}, {times:.1f} times"
    )
    assert network.kind == MLP or times > 1


def test_self_play_on_a_gpu(played: Played) -> None:
    config, root, model = played

    def rate(compute: Compute) -> float:
        spec = selfplay_spec(root, model, config, games=PLAYED[compute.device], **compute.model_dump())
        return best(lambda: play(spec, ignore)["rows"])

    compare("self-play", "rows", config.network, rate)


def test_self_play_by_search_on_a_gpu(played: Played) -> None:
    config, root, _ = played
    config = config.replace(backend="search", search=SearchSettings(simulations=8))
    model = put_model(root, config)

    def rate(compute: Compute) -> float:
        spec = selfplay_spec(root, model, config, games=SEARCHING[compute.device], **compute.model_dump())
        return best(lambda: play_by_search(spec, ignore)["rows"])

    compare("self-play by search of 8 simulations", "rows", config.network, rate)


def test_evaluation_on_a_gpu(played: Played) -> None:
    config, root, model = played
    game = open_table(config, 0).spec

    def rate(compute: Compute) -> float:
        hero, games = PLAYERS.load(FileStore(root), model, game, compute), PLAYED[compute.device]
        at_once = games_at_once(compute.device, IN_FLIGHT)
        return best(lambda: len(play_match(config, hero, RandomPlayer(), MatchPlan(games, 1, 1.0), at_once).scores))

    compare("evaluation", "games", config.network, rate)


def test_an_update_on_a_gpu(played: Played) -> None:
    config, samples = played[0], samples_of(played)
    compare("update", "rows", config.network, lambda compute: updating(config, samples, compute))


def test_an_update_on_a_gpu_keeps_up_with_cleanrl_s(played: Played) -> None:
    config, samples = played[0], samples_of(played).to(resolve("cuda"))

    def theirs() -> int:
        cleanrl_epoch(learner(config, "cuda"), samples, SETTINGS)
        return len(samples)

    own = updating(config, samples, GPU)
    with pytorch_as_it_is():
        peer = best(theirs)
    print(  # noqa: T201
        f"\nupdate on the GPU, {name_of(config.network)}: {own:,.0f} rows/s, CleanRL style {peer:,.0f}, "
        f"{own / peer:.2f} times"
    )
    assert own / peer >= 0.95  # both are bound by the same kernels where a network is large


def samples_of(played: Played) -> Samples:
    config, root, model = played
    shard = play(selfplay_spec(root, model, config, games=1024, device="cuda"), ignore)["shard"]
    return make_samples([get_shard(FileStore(root), shard)], 1.0, 0.95)


def learner(config: GameConfig, device: str) -> nn.Module:
    shape = open_table(config, 0).spec.shape
    return load_network(config.network, shape, init_policy(config.network, shape, 1)).to(device)


def updating(config: GameConfig, samples: Samples, compute: Compute) -> float:
    """Return the rows a second of an epoch.

    The time includes the transfer of samples from another device. A CPU gets a part of the samples.
    """
    device = resolve(compute.device)
    if device.type == "cpu":
        samples = samples.part(slice(ROWS_ON_CPU))

    def epoch() -> int:
        network, here = learner(config, compute.device), samples.to(device)
        optimizer, generator = load_adam(network, SETTINGS.learning_rate, None), torch.Generator().manual_seed(1)
        said = {"precision": compute.precision, "report": lambda number, metrics: None}
        update(network, optimizer, here, SETTINGS, generator=generator, **said)
        return len(samples)

    return best(epoch)


@contextmanager
def pytorch_as_it_is() -> Iterator[None]:
    """Let PyTorch choose its algorithms as CleanRL does. CleanRL makes only cuDNN's algorithms deterministic."""
    torch.use_deterministic_algorithms(mode=False)
    yield
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
