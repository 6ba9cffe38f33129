"""Devices and precision: settings, checks, specs, and bfloat16 on the CPU."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import configured, training_of
from driving import KEY, run_settings
from scenario_events import asked as asked_games
from selfplay_rig import CONFIG, ignore, put_model, selfplay_spec

from flyball.app.config import BadSettings, Compute, Deployment, PipelineSettings, PpoCoefficients
from flyball.app.config.devices import GPU_GAMES
from flyball.app.config.loading import load
from flyball.app.controllers.fold import Fold
from flyball.app.engine import InlineEngine, JobFailed
from flyball.app.events import EvaluationRequested, Payload
from flyball.app.games import open_table
from flyball.app.job_specs import JobContext
from flyball.app.learning import devices, torchrun
from flyball.app.learning.devices import MissingDevice, UnknownDevice, decided, games_at_once, missing_device, resolve
from flyball.app.learning.jobs import train
from flyball.app.learning.network import bytes_to_parameters
from flyball.app.learning.torchrun import own_device
from flyball.app.play.gauntlet import GauntletSpec, Opponent
from flyball.app.play.matches import batch
from flyball.app.play.players import load_player
from flyball.app.play.selfplay import play
from flyball.app.store import FileStore, get_checkpoint, get_shard
from flyball.app.train.game import UnfitSettings
from flyball.app.train.learning import check_start
from flyball.daemons import suitability
from flyball.daemons.evaluation import Evaluator
from flyball.daemons.jobs import Worker, WorkerIdentity
from flyball.daemons.selfplay_worker import SelfplayWorker
from flyball.daemons.suitability import check_devices
from flyball.daemons.training import Trainer

AUTO, BFLOAT16 = Compute(precision="auto"), Compute(precision="bfloat16")
GPU = Compute(device="cuda:1", precision="bfloat16")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    """Let PyTorch find no CUDA device, wherever the tests run."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    resolve.cache_clear()
    yield
    resolve.cache_clear()


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch):
    def found(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "test")

    return found


def settings_of(folder: Path, text: str) -> Deployment:
    (folder / "flyball.toml").write_text(text)
    return load(folder).deployment


@pytest.mark.parametrize(
    ("text", "variable", "computes"),
    [
        ("[deployment]\ndevice = 'cuda:1'\nprecision = 'bfloat16'\n", {}, [GPU] * 3),
        (
            "[deployment.device]\ntraining = 'cuda'\nevaluation = 'auto'\n",
            {"FLYBALL_DEPLOYMENT__DEVICE__EVALUATION": "cpu"},
            [AUTO, AUTO.replace(device="cuda"), AUTO],
        ),
        (
            "[deployment.device]\ntraining = 'cuda'\n",
            {"FLYBALL_DEPLOYMENT__DEVICE": "auto"},
            [AUTO.replace(device="auto")] * 3,
        ),
        ("[deployment]\nprocesses_per_training = 3\n", {}, [AUTO, AUTO.replace(processes=3), AUTO]),
    ],
)
def test_devices_are_set_for_all_kinds_of_jobs_or_one_by_one(tmp_path, monkeypatch, text, variable, computes) -> None:
    """Only trainings have several processes."""
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    found = settings_of(tmp_path, text)
    assert [found.compute(kind) for kind in ("selfplay", "training", "evaluation")] == computes


def test_text_servers_are_those_of_the_installation(tmp_path: Path) -> None:
    assert Deployment().text_servers(Path("/run"), tmp_path) is None
    text = '[deployment.text]\nservers = ["http://127.0.0.1:8000", "https://gpu:8001/"]\n'
    for more, folder in (("", "/run/adapters"), ('adapters = "shared"\n', str(tmp_path / "shared"))):
        found = settings_of(tmp_path, text + more).text_servers(Path("/run"), tmp_path)
        assert found is not None
        assert (len(found.addresses), found.folder) == (2, folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('text.servers = ["gpu:8000"]', "write http://HOST:PORT"),
        ('text.servers = ["http://"]', "write http://HOST:PORT"),
        ('text.servers = ["http://gpu:8000/v1"]', "write http://HOST:PORT"),
        ('text.servers = ["http://gpu", "http://gpu"]', "same address"),
        ("device = 'gpu'", "deployment.device.selfplay (flyball.toml): 'gpu' is not a device: write cpu, cuda"),
        ("device = 1", "deployment.device.selfplay (flyball.toml)"),
        ("precision = 'float16'", "deployment.precision.selfplay (flyball.toml)"),
        ("device = {trainings = 'cpu'}", "Unknown setting 'deployment.device.trainings'"),
    ],
)
def test_a_bad_device_or_server_names_its_key_and_file(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadSettings) as refused:
        settings_of(tmp_path, f"[deployment]\n{text}\n")
    assert words in refused.value.message


WANTED: dict[type[Worker], Payload] = {
    SelfplayWorker: asked_games("selfplay_worker@laptop"),
    Trainer: training_of(model="b" * 64),
    Evaluator: EvaluationRequested(purpose="rating", model="a" * 64, step=0, seed=1),
}


@pytest.mark.parametrize("worker", WANTED)
def test_a_worker_s_jobs_say_device_and_precision(record, worker: type[Worker]) -> None:
    identity = WorkerIdentity("selfplay_worker@laptop", "laptop", JobContext(store="store", **dict(GPU)))
    fold = Fold((partial(worker, identity=identity),))
    fold.feed([record(configured(run_settings(KEY)), at=1), record(WANTED[worker], KEY, at=2)])
    (job,) = fold.reducers[-1].jobs(fold.rows(worker.name), fold.states)
    assert job.parts
    assert all((part["device"], part["precision"]) == ("cuda:1", "bfloat16") for part in job.parts)


def test_auto_is_the_gpu_where_there_is_one_else_the_cpu(monkeypatch: pytest.MonkeyPatch, gpus) -> None:
    assert (resolve("auto"), resolve("cpu")) == (torch.device("cpu"),) * 2
    assert games_at_once("auto", 256) == 256
    resolve.cache_clear()
    gpus(1)
    monkeypatch.setattr(devices, "_be_deterministic", lambda: None)
    assert resolve("auto") == torch.device("cuda")
    assert games_at_once("auto", 256) == GPU_GAMES


def test_a_device_is_missing_beyond_the_last_one(gpus) -> None:
    assert missing_device("cuda") == "cuda was asked for and PyTorch finds no CUDA device"
    assert missing_device("auto", 4) is missing_device("cpu", 4) is None, "processes share the CPU"
    gpus(1)
    assert missing_device("cuda:0") is None
    assert missing_device("cuda:1") == "cuda:1 was asked for and PyTorch finds 1 CUDA device"
    with pytest.raises(UnknownDevice):
        missing_device("gpu")
    gpus(3)
    assert missing_device("cuda", 3) is missing_device("cuda:1", 2) is missing_device("auto", 3) is None
    for device, processes in (("cuda", 4), ("cuda:2", 2), ("auto", 5)):
        asked = f"{device} was asked for by {processes} processes and PyTorch finds 3 CUDA devices"
        assert missing_device(device, processes) == asked


def test_ranks_compute_on_the_gpus_from_the_named_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"auto": torch.device("cuda"), "cuda:1": torch.device("cuda:1"), "cpu": torch.device("cpu")}
    monkeypatch.setattr(torchrun, "resolve", there.__getitem__)
    computes = [own_device(Compute(device=device, processes=4), rank=2) for device in there]
    assert computes == [Compute(device="cuda:2"), Compute(device="cuda:3"), Compute()]


async def test_a_job_on_a_missing_device_fails_and_says_so(tmp_path: Path) -> None:
    model = put_model(tmp_path)
    training = {"store": str(tmp_path), "config": CONFIG.model_dump(mode="json"), "device": "cuda", "base_model": model}
    training |= {"shards": ["c" * 64], "seed": 1, "step": 0, "learning_rate": 1e-3, "epochs": 1}
    (match,) = gauntlet(tmp_path, model, device="cuda").parts
    jobs = {
        "flyball.app.play.selfplay:play": selfplay_spec(tmp_path, model, device="cuda"),
        "flyball.app.play.matches:batch": match,
        "flyball.app.learning.jobs:train": training,
    }
    engine = InlineEngine()
    for function, spec in jobs.items():
        with pytest.raises(JobFailed) as failed:
            await engine.run(function, spec)
        assert (failed.value.kind, bool(failed.value.hint)) == ("MissingDevice", True)
    await engine.close()
    with pytest.raises(MissingDevice):
        load_player(FileStore(tmp_path), model, open_table(CONFIG, 0).spec, Compute(device="cuda"))


def test_a_run_is_refused_without_its_device_or_enough_gpus(monkeypatch) -> None:
    """The device is one that no machine has. The check asks another process, where nothing is patched."""
    device = {"training": "cuda:99"}
    with pytest.raises(BadSettings, match=r"deployment.device.training: cuda:99 ") as refused:
        check_devices(Deployment.model_validate({"device": device}))
    assert refused.value.hint
    asked = []

    async def missing(devices: list) -> dict:
        asked.extend(devices)
        return {"reasons": ["auto was asked for by 2 processes and PyTorch finds 1 CUDA device"]}

    monkeypatch.setattr(suitability, "_missing_devices", missing)
    with pytest.raises(BadSettings, match=r"deployment.device.training: auto ") as refused:
        check_devices(Deployment.model_validate({"device": {"training": "auto"}, "processes_per_training": 2}))
    assert asked == [("auto", 2)]
    assert "deployment.processes_per_training to no more than GPUs" in refused.value.hint
    check_devices(Deployment.model_validate({"device": {"training": "auto"}}))
    assert asked == [("auto", 2)], "no process is asked unless a GPU is set"


def test_a_training_run_checks_the_device_of_its_games() -> None:
    processes = PipelineSettings.model_validate({"training": {"processes": 2}})
    assert (processes.updates.processes, processes.games.processes) == (2, 1)
    settings = PipelineSettings.model_validate({"collection": {"device": "cuda", "precision": "bfloat16"}})
    assert (settings.updates, settings.games) == (
        Compute(precision="auto"),
        Compute(device="cuda", precision="bfloat16"),
    )
    with pytest.raises(UnfitSettings, match=r"collection.device: cuda "):
        check_start(settings, begun=False)


@pytest.mark.parametrize("unit", ["amx_bf16", "avx512_bf16", None])
def test_auto_is_bfloat16_for_searches_where_there_are_units(monkeypatch: pytest.MonkeyPatch, unit: str | None) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True} | ({unit: True} if unit else {}), False)
    automatic = Compute(precision="auto", settings_folder="here")
    assert decided(automatic, "search") == automatic.replace(precision="bfloat16" if unit else "float32")
    for backend in ("policy_gradient", "mine:BACKEND"):
        assert decided(automatic, backend) == automatic.replace(precision="float32")
    for compute in (Compute(), BFLOAT16):
        assert decided(compute, "search") is compute


def gauntlet(root: Path, model: str, **compute: str) -> GauntletSpec:
    opponents = (Opponent(name="random", kind="random", games=20),)
    return GauntletSpec(store=root, config=CONFIG, model=model, seed=1, opponents=opponents, **compute)


def test_a_gauntlet_s_batches_are_larger_on_a_gpu(tmp_path: Path) -> None:
    opponents = (Opponent(name="random", kind="random", games=1000),)
    batches = [
        gauntlet(tmp_path, "a" * 64, device=device).replace(opponents=opponents).batches for device in ("cpu", "cuda")
    ]
    assert [(len(parts), sum(part.games for part in parts)) for parts in batches] == [(4, 1000), (1, 1000)]


@pytest.fixture
def trained(tmp_path: Path) -> tuple[str, dict]:
    """Return a model and a training on its bfloat16 games. The model's logits differ."""
    model = put_model(tmp_path, scale=3)
    shard = play(selfplay_spec(tmp_path, model, games=60, precision="bfloat16"), ignore)["shard"]
    spec = {
        "store": str(tmp_path),
        "config": CONFIG.replace(ppo=PpoCoefficients(batch_size=64, target_kl=10, max_kl=10)).model_dump(mode="json"),
        "base_model": model,
        "shards": [shard],
        "seed": 3,
        "step": 0,
        "learning_rate": 1e-3,
        "epochs": 2,
    }
    return model, spec


def test_bfloat16_play_is_near_float32_legal_and_the_same_again(tmp_path, trained) -> None:
    model, spec = trained
    store, game = FileStore(tmp_path), open_table(CONFIG, 0).spec
    shard = get_shard(store, spec["shards"][0])
    full, half = (load_player(store, model, game, compute) for compute in (Compute(), BFLOAT16))
    (exact, values), (rounded, near) = (player.forward(shard.obs, shard.mask) for player in (full, half))
    assert (rounded.dtype, near.dtype) == (np.float32, np.float32)
    assert np.abs(values - near).max() > 0
    np.testing.assert_allclose(near, values, rtol=0.02, atol=0.1)
    np.testing.assert_allclose(np.exp(rounded), np.exp(exact), atol=0.05)
    assert (np.exp(rounded)[~shard.mask] == 0).all()
    np.testing.assert_allclose(np.exp(rounded).sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(half.weights()["policy_head"], full.weights()["policy_head"], rtol=2**-8)
    model, spec = trained
    assert [play(selfplay_spec(tmp_path, model, games=60, precision="bfloat16"), ignore)["shard"]] == spec["shards"]
    (part,) = gauntlet(tmp_path, model, precision="bfloat16").parts
    assert batch(part, ignore)["games"] == batch(part, ignore)["games"]


def test_a_bfloat16_update_is_near_float32_with_float32_weights(tmp_path: Path, trained) -> None:
    _, spec = trained
    full, half, again = (train({**spec, "precision": p}, ignore) for p in ("float32", "bfloat16", "bfloat16"))
    assert half["model"] == again["model"] != full["model"]
    for name in ("policy_loss", "value_loss", "entropy", "approx_kl", "explained_variance"):
        assert half["metrics"][name] == pytest.approx(full["metrics"][name], rel=0.02, abs=0.02), name
    checkpoint = get_checkpoint(FileStore(tmp_path), half["model"], optimizer=True)
    for file in (checkpoint.parameters, checkpoint.optimizer):
        assert {tensor.dtype for tensor in bytes_to_parameters(file).values()} == {torch.float32}
