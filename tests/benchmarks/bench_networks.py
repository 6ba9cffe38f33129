"""Play, training and inference of all kinds of networks.

Inference is compared with OpenVINO and ONNX Runtime, in turns in one process. Run with
``pytest tests/benchmarks/bench_networks.py -m benchmark -s``. Rates are by processor time, on one thread. The other
libraries are measured where they are installed, with ``onnx``.
"""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from taking_turns import rate, selfplay

from flyball.app.config import GAMES, Compute, NetworkSettings, PpoSettings, Precision
from flyball.app.core import NetworkShape
from flyball.app.games import open_table
from flyball.app.learning.devices import arithmetic
from flyball.app.learning.inference import Policy
from flyball.app.learning.learner import load_adam
from flyball.app.learning.network import init_policy, load_network
from flyball.app.learning.ppo import descend, update
from flyball.app.learning.samples import Samples, prepare
from flyball.app.play.selfplay import IN_FLIGHT, play_recorded, selfplay_schedule

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]
CONFIG, ROUNDS = GAMES["connect_four_2p"], 5
SHAPE = open_table(CONFIG, 0).spec.shape
SETTINGS = PpoSettings(batch_size=512, epochs=1, target_kl=10, max_kl=10, learning_rate=1e-4)
NETWORKS = {
    "mlp 256, 128": NetworkSettings(),
    "windows": NetworkSettings(kind="windows"),
    "windows, 2 residual blocks": NetworkSettings(kind="windows", hidden=(256,), residual=2),
    "tower 4 x 32": NetworkSettings(kind="tower"),
    "tower 4 x 64": NetworkSettings(kind="tower", channels=64),
    "tower 4 x 32, squeeze-excite": NetworkSettings(kind="tower", squeeze_excite=True),
    "conv_network.py, 16 channels": NetworkSettings(kind="conv_network:build"),
}


OURS = {name: settings for name, settings in NETWORKS.items() if ":" not in settings.kind}
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
SHORTEST_S = 0.05  # of a measurement


def policy_of(settings: NetworkSettings) -> Policy:
    return Policy(settings, SHAPE, init_policy(settings, SHAPE, 0))


def played(settings: NetworkSettings, seed: int) -> float:
    """Return the rows a second of ``IN_FLIGHT`` games of self-play."""
    policy = policy_of(settings)
    return rate(lambda number: selfplay(CONFIG, policy, IN_FLIGHT, number), seed)


def trained(settings: NetworkSettings, samples: Samples) -> float:
    """Return the rows a second of an epoch of PPO."""
    network = load_network(settings, SHAPE, init_policy(settings, SHAPE, 0))
    optimizer = load_adam(network, SETTINGS.learning_rate, None)
    generator, began = torch.Generator().manual_seed(1), process_time()
    update(network, optimizer, samples, SETTINGS, generator=generator, report=lambda epoch, metrics: None)
    return len(samples) / (process_time() - began)


def test_rows_a_second_of_every_kind_of_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples")
    torch.set_num_threads(1)
    facts = {"model": "0" * 64, "seed": 1, "worker": "bench", "in_flight": IN_FLIGHT}
    shard, _ = play_recorded(
        CONFIG, [policy_of(NetworkSettings())], selfplay_schedule(IN_FLIGHT, 2, [], (1.0,), 1, opening_plies=0), **facts
    )
    samples = prepare([shard], SETTINGS, (), 1)
    rates = {name: [] for name in NETWORKS}
    for number in range(ROUNDS + 1):
        for name, settings in NETWORKS.items():
            rates[name].append((played(settings, number), trained(settings, samples)))
    for name, pairs in rates.items():
        play, train = (median(column) for column in zip(*pairs[1:], strict=True))  # the first round warms up
        size = sum(tensor.numel() for tensor in init_policy(NETWORKS[name], SHAPE, 0).values())
        print(f"\n{name}: {size:,} parameters, play {play:,.0f} rows/s, training {train:,.0f} rows/s")  # noqa: T201
    assert all(min(column) > 0 for pairs in rates.values() for column in zip(*pairs, strict=True))


def calls_a_second(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the rate of each of ``calls``, in calls a second. It is the best of rounds that take turns."""
    best = dict.fromkeys(calls, 0.0)
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            count, began = 0, process_time()
            while (passed := process_time() - began) < SHORTEST_S:
                call()
                count += 1
            best[name] = max(best[name], count / passed)
    return best


def positions(shape: NetworkShape, rows: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 2, (rows, shape.features), dtype=np.uint8)


@pytest.mark.parametrize("key", ["connect_four_2p", "hex7_2p", "go7_2p", "othello_2p"])
def test_positions_a_second_by_precision_and_rows(key: str) -> None:
    torch.set_num_threads(1)
    shape = open_table(GAMES[key], 0).spec.shape
    for name, settings in OURS.items():
        parameters = init_policy(settings, shape, 0)
        policies = {
            precision: Policy(settings, shape, parameters, Compute(precision=precision)) for precision in PRECISIONS
        }
        rates = {}
        for rows in (8, 64, 512):
            obs = positions(shape, rows)
            found = calls_a_second({each: partial(policy.outputs, obs) for each, policy in policies.items()})
            rates |= {f"{each}, {rows}": rate * rows for each, rate in found.items()}
        exact, rounded = (policies[each].outputs(obs) for each in PRECISIONS)
        told = ", ".join(f"{each}: {rate:,.0f}" for each, rate in rates.items())
        apart = np.abs(exact - rounded).max()
        print(f"\n{key}, {name}: {told}; largest difference {apart:.4f} of {np.abs(exact).max():.2f}")  # noqa: T201
        assert apart < 0.05


@pytest.mark.parametrize("key", ["connect_four_2p", "othello_2p"])
def test_training_rows_a_second_by_precision(key: str) -> None:
    torch.set_num_threads(1)
    shape = open_table(GAMES[key], 0).spec.shape
    for name, settings in OURS.items():
        for rows in (512, 2048):
            steps = {precision: training_step(settings, shape, rows, precision) for precision in PRECISIONS}
            rates = {each: rate * rows for each, rate in calls_a_second(steps).items()}
            told = ", ".join(f"{each}: {rate:,.0f}" for each, rate in rates.items())
            print(f"\n{key}, {name}, batches of {rows}: {told} rows/s")  # noqa: T201
            assert min(rates.values()) > 0


def training_step(
    settings: NetworkSettings, shape: NetworkShape, rows: int, precision: Precision
) -> Callable[[], object]:
    """Return a function that makes a step of Adam. Its targets are fixed, and like a search's policies and outcomes."""
    network = load_network(settings, shape, init_policy(settings, shape, 0))
    optimizer, obs = load_adam(network, 1e-4, None), torch.from_numpy(positions(shape, rows))
    generator = torch.Generator().manual_seed(0)
    wanted = torch.softmax(torch.randn(rows, shape.actions, generator=generator), dim=1)
    outcomes = torch.randn(rows, generator=generator).sign()

    def step() -> None:
        with arithmetic(obs.device, precision):
            logits, values = network(obs)
        policy_loss = -(wanted * torch.log_softmax(logits.float(), dim=1)).sum(dim=1).mean()
        descend(network, optimizer, policy_loss + (values.float() - outcomes).square().mean(), max_norm=0.5)

    return step


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rows", [64, 512])
def test_inference_beside_other_libraries(rows: int) -> None:
    openvino, runtime = pytest.importorskip("openvino"), pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    torch.set_num_threads(1)
    obs = positions(SHAPE, rows)
    floats = obs.astype(np.float32)
    for name, settings in OURS.items():
        parameters = init_policy(settings, SHAPE, 0)
        network = load_network(settings, SHAPE, parameters)
        calls: dict[str, Callable[[], object]] = {
            f"ours, {precision}": partial(
                Policy(settings, SHAPE, parameters, Compute(precision=precision)).outputs, obs
            )
            for precision in PRECISIONS
        }
        example = torch.from_numpy(floats)
        with torch.no_grad():
            frozen = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(network, example)))
        calls["TorchScript, float32"] = torch.inference_mode()(partial(frozen, example))
        converted = openvino.convert_model(network, example_input=example, input=list(floats.shape))
        for precision, hint in (("float32", "f32"), ("bfloat16", "bf16")):
            how = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
            request = openvino.Core().compile_model(converted, "CPU", how).create_infer_request()
            calls[f"OpenVINO, {precision}"] = partial(request.infer, [floats], share_inputs=True, share_outputs=True)
        file = BytesIO()
        torch.onnx.export(network, (example,), file, dynamo=False, input_names=["obs"])
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = runtime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
        calls["ONNX Runtime, float32"] = partial(session.run, None, {"obs": floats})
        rates = calls_a_second(calls)
        told = ", ".join(f"{each}: {rate * rows:,.0f}" for each, rate in rates.items())
        print(f"\n{name}, {rows} rows: {told} positions/s")  # noqa: T201
        assert min(rates.values()) > 0
