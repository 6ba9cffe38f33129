"""Networks of all kinds and policies: shapes, bytes, inference and checks."""

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from own_training import train_spec
from selfplay_rig import ignore, put_model, selfplay_spec
from torch import nn

from flyball.app.config import GAMES, Compute, GameConfig, NetworkSettings
from flyball.app.core import NetworkShape, UnknownPlugin
from flyball.app.core.legal import LegalActions
from flyball.app.games import open_table
from flyball.app.learning.dense import ActorCritic
from flyball.app.learning.inference import CHUNK, NoLegalAction, Policy
from flyball.app.learning.jobs import train
from flyball.app.learning.network import (
    BadNetwork,
    BadParameters,
    bytes_to_parameters,
    candidates,
    init_policy,
    load_network,
    masked_log_probs,
    parameters_to_bytes,
    threads,
)
from flyball.app.learning.network_check import check_network
from flyball.app.play.players import load_player
from flyball.app.play.selfplay import play
from flyball.app.store import FileStore, get_checkpoint

TOWER = NetworkSettings(kind="tower", blocks=2, channels=8)
EXCITED = TOWER.replace(squeeze_excite=True)
WINDOWS = NetworkSettings(kind="windows", filters=16, hidden=(32, 24))
CONV = NetworkSettings(kind="conv_network:build", options={"channels": 4})
PLANES = TOWER.replace(policy_head="planes")
BOARD = open_table(GAMES["connect_four_2p"], 0).spec.shape
SHOGI = open_table(GAMES["minishogi_2p"], 0).spec.shape
WITH_SCALARS = open_table(GAMES["ultimate_tic_tac_toe_2p"], 0).spec.shape
KINDS = [
    (NetworkSettings(), BOARD),
    (TOWER, BOARD),
    (EXCITED, WITH_SCALARS),
    (PLANES, SHOGI),
    (WINDOWS, BOARD),
    (WINDOWS, WITH_SCALARS),
    (WINDOWS.replace(residual=2), BOARD),
    (NetworkSettings(hidden=(32,), residual=1), WITH_SCALARS),
    (CONV, BOARD),
    (NetworkSettings(hidden=(512, 768)), BOARD),  # with AMX, sums of so wide layers depend on the number of rows
]


def positions(shape: NetworkShape, rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (rows, shape.features), dtype=np.uint8) * np.uint8(shape.scale)


def policy_of(settings: NetworkSettings, shape: NetworkShape, seed: int = 1) -> Policy:
    return Policy(settings, shape, init_policy(settings, shape, seed))


@pytest.mark.parametrize("settings", [NetworkSettings(hidden=(16, 8)), TOWER, EXCITED, WINDOWS, CONV])
def test_network_from_a_seed_has_deterministic_bytes(settings: NetworkSettings) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (parameters_to_bytes(init_policy(settings, BOARD, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert torch.equal(before, torch.random.get_rng_state())


def test_bytes_keep_tensors_in_the_order_of_their_names() -> None:
    """A fixed order makes random draws for each tensor repeatable."""
    parameters = init_policy(EXCITED, WITH_SCALARS, 1)
    data = parameters_to_bytes(parameters)
    assert data == parameters_to_bytes(dict(reversed(parameters.items())))
    restored = [bytes_to_parameters(data) for _ in range(5)]
    assert [list(one) for one in restored] == [sorted(parameters)] * 5
    assert all(torch.equal(restored[0][name], tensor) for name, tensor in parameters.items())
    shapes = {name: weight.shape for name, weight in policy_of(TOWER, BOARD).weights().items()}
    assert (shapes["stem.weight"], shapes["policy_head.weight"]) == ((8, 3, 3, 3), (7, 336))


@pytest.mark.parametrize(("settings", "shape"), KINDS)
def test_policy_of_any_kind_agrees_with_its_network(settings: NetworkSettings, shape: NetworkShape) -> None:
    parameters, obs = init_policy(settings, shape, 3), positions(shape, 150)
    with torch.no_grad():
        logits, values = load_network(settings, shape, parameters)(torch.from_numpy(obs))
    outputs = Policy(settings, shape, parameters).outputs(obs)
    np.testing.assert_allclose(outputs[:, :-1], logits, atol=1e-5)
    np.testing.assert_allclose(outputs[:, -1], values, atol=1e-5)
    assert np.ptp(values.numpy()) > 0.01


@pytest.mark.parametrize(("settings", "shape"), KINDS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_outputs_do_not_depend_on_the_batch(settings: NetworkSettings, shape: NetworkShape, precision: str) -> None:
    parameters, obs = init_policy(settings, shape, 1), positions(shape, 1_300)
    policy, chunk = Policy(settings, shape, parameters, Compute(precision=precision)), CHUNK[precision]
    together = policy.outputs(obs)
    for rows, begin in product((0, 1, 5, chunk - 1, chunk, chunk + 1, 200, 3 * chunk + 1), (0, 19)):
        assert np.array_equal(policy.outputs(obs[begin : begin + rows]), together[begin : begin + rows])
    assert together.dtype == np.float32
    if precision == "bfloat16":
        exact = Policy(settings, shape, parameters).outputs(obs)
        assert 0 < np.abs(together - exact).max() < 0.05


@pytest.mark.parametrize("scale", [255.0, tuple(range(1, BOARD.features + 1))])
@pytest.mark.parametrize("settings", [NetworkSettings(hidden=(8,)), TOWER, WINDOWS, CONV])
def test_features_are_scaled_inside_the_network(settings: NetworkSettings, scale: float | tuple[float, ...]) -> None:
    pixels = NetworkShape(BOARD.features, BOARD.actions, BOARD.planes, scale=scale)
    parameters, obs = init_policy(settings, BOARD, 1), positions(BOARD, 20)
    bright = obs * np.asarray(scale, dtype=np.uint8)
    plain, scaled = (Policy(settings, shape, parameters) for shape in (BOARD, pixels))
    assert np.array_equal(scaled.outputs(bright), plain.outputs(obs))
    expected = load_network(settings, BOARD, parameters)(torch.from_numpy(obs))
    trained = load_network(settings, pixels, parameters)(torch.from_numpy(bright))
    assert all(torch.equal(a, b) for a, b in zip(trained, expected, strict=True))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("network", [EXCITED, WINDOWS, CONV])
def test_training_of_any_network_is_deterministic(tmp_path: Path, network: NetworkSettings, precision: str) -> None:
    config = GAMES["connect_four_2p"].replace(network=network)
    model = put_model(tmp_path, config)
    shard = play(selfplay_spec(tmp_path, model, config, games=40), ignore)["shard"]
    spec = {"store": str(tmp_path), "config": config.model_dump(mode="json"), "base_model": model, "shards": [shard]}
    spec |= {"seed": 3, "step": 0, "learning_rate": 1e-3, "epochs": 2, "precision": precision}
    first, again = (train(spec, ignore) for _ in range(2))
    assert first["model"] == again["model"]
    assert first["metrics"]["approx_kl"] > 0
    manifest = get_checkpoint(FileStore(tmp_path), first["model"], optimizer=True).manifest
    assert (manifest.step, manifest.network, manifest.shape) == (1, network, BOARD)


def test_planes_and_windows_lie_at_their_places() -> None:
    parameters, obs = init_policy(PLANES, SHOGI, 1), positions(SHOGI, 3)
    network = load_network(PLANES, SHOGI, parameters)
    planes = []
    network.policy_head.register_forward_hook(lambda _layer, _inputs, output: planes.append(output.detach().numpy()))
    with torch.no_grad():
        logits, _ = network(torch.from_numpy(obs))
    row, rest = np.divmod(SHOGI.action_places, 5 * SHOGI.action_planes)
    column, plane = np.divmod(rest, SHOGI.action_planes)
    assert np.array_equal(logits.numpy(), planes[0][:, plane, row, column])
    parameters = init_policy(WINDOWS, BOARD, 2)
    network = load_network(WINDOWS, BOARD, parameters)
    obs = positions(BOARD, 5)
    grid, weight = obs.reshape(5, 3, 6, 7), parameters["windows.weight"].numpy()
    found = (network.hidden_layers()[0][0].numpy() @ obs.T).T.reshape(5, 16, 3, 4)
    for row, column in product(range(3), range(4)):
        window = grid[:, :, row : row + 4, column : column + 4].reshape(5, -1)
        np.testing.assert_allclose(found[:, :, row, column], window @ weight.reshape(16, -1).T, atol=1e-5)
    spec = open_table(GAMES["connect_four_2p"], 0).spec
    grid = np.arange(spec.observation_size).reshape(spec.planes)
    assert np.array_equal(spec.symmetries[0].observation.reshape(spec.planes), grid[:, :, ::-1])


def test_head_of_planes_plays_without_its_game(tmp_path: Path) -> None:
    """The checkpoint alone describes the head, and one of another head keeps its bytes."""
    plane, dense = (
        get_checkpoint(FileStore(tmp_path), put_model(tmp_path, GAMES["minishogi_2p"].replace(network=head))).manifest
        for head in (PLANES, TOWER)
    )
    assert (plane.shape.action_planes, plane.shape.action_places, plane.shape) == (69, None, SHOGI)
    parameters, obs = init_policy(PLANES, SHOGI, 1), positions(SHOGI, 20)
    played, known = (Policy(PLANES, shape, parameters).outputs(obs) for shape in (plane.shape, SHOGI))
    assert np.array_equal(played, known)
    assert dense.shape.action_planes == 0
    assert not {"action_planes", "policy_head"} & json.loads(dense.note).keys()
    assert "policy_head" not in dense.note


def test_network_that_does_not_fit_its_game_is_refused() -> None:
    hearts = open_table(GAMES["hearts_4p"], 0).spec.shape
    for settings, shape, why in (
        (PLANES, BOARD, "actions that belong to cells"),
        (TOWER, hearts, "needs planes"),
        (WINDOWS, hearts, "needs planes"),
    ):
        with pytest.raises(BadNetwork, match=why):
            init_policy(settings, shape, 0)
    with pytest.raises(BadParameters, match=r"tower \(blocks = 3"):
        load_network(TOWER.replace(blocks=3), BOARD, init_policy(TOWER, BOARD, 0))
    with pytest.raises(UnknownPlugin, match="'towers'") as refused:
        init_policy(NetworkSettings(kind="towers"), BOARD, 0)
    assert "Did you mean tower?" in refused.value.hint


@pytest.mark.parametrize(
    ("key", "planes"),
    [
        ("tic_tac_toe_2p", (3, 3, 3)),
        ("connect_four_2p", (3, 6, 7)),
        ("breakthrough6_2p", (3, 6, 6)),
        ("hex7_2p", (7, 7, 7)),
        ("go7_2p", (4, 7, 7)),
        ("othello_2p", (3, 8, 8)),
        ("ultimate_tic_tac_toe_2p", (27, 3, 3)),
        ("clobber_2p", (3, 5, 6)),
        *((key, None) for key in ("oh_hell_3p", "maedn_4p", "chinese_checkers_3p", "hearts_4p")),
        ("y(board_size=5)", (3, 5, 5)),  # of OpenSpiel
        ("leduc_poker", None),
    ],
)
def test_planes_of_games_cover_their_cells(key: str, planes: tuple[int, int, int] | None) -> None:
    config = GAMES[key] if key in GAMES else GameConfig(key="foreign_2p", game=key, players=2)
    spec = open_table(config, 0).spec
    assert (spec.planes, spec.scale) == (planes, 1.0)
    scalars = {"ultimate_tic_tac_toe_2p": 46}.get(key, 0)
    assert spec.shape.scalars == (scalars if planes else spec.observation_size)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("largest", [1.0, 30_000.0])
def test_masking_is_safe_in_every_precision(kind: torch.dtype, largest: float) -> None:
    drawn = torch.rand((50, 9), generator=torch.Generator().manual_seed(1)) * 2 - 1
    logits = (drawn * largest).to(kind).requires_grad_()
    mask = torch.zeros(50, 9, dtype=torch.bool)
    mask[:, 4] = True  # all but one are masked
    mask[25:] |= drawn[25:] > 0
    log_probs = masked_log_probs(logits, mask)
    assert log_probs.dtype == torch.float32
    assert not log_probs[:25, 4].any()
    assert not log_probs.exp()[~mask].any()
    assert torch.allclose(log_probs.exp().sum(dim=1), torch.ones(50))
    (log_probs.exp() * log_probs).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert not logits.grad[~mask].any()


@pytest.mark.parametrize("listed", [False, True])
def test_candidates_have_the_probabilities_of_their_actions(listed: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    logits, mask = torch.randn(50, 9, generator=generator), torch.rand(50, 9, generator=generator) < 0.3
    mask[torch.arange(50), torch.arange(50) % 9] = True
    action = torch.multinomial(mask.float(), 1, generator=generator)
    expected = masked_log_probs(logits, mask).gather(1, action)
    legal = LegalActions.of(mask.numpy()) if listed else mask
    narrow, held, place = candidates(logits, legal, action)
    assert narrow.shape == held.shape == (50, mask.sum(dim=1).max() if listed else 9)
    assert torch.allclose(masked_log_probs(narrow, held).gather(1, place), expected)


@pytest.mark.parametrize("settings", [TOWER, EXCITED, WINDOWS, CONV])
def test_manifest_carries_kind_and_planes(tmp_path: Path, settings: NetworkSettings) -> None:
    config = GAMES["connect_four_2p"].replace(network=settings)
    manifest = get_checkpoint(FileStore(tmp_path), put_model(tmp_path, config)).manifest
    assert (manifest.network, manifest.shape) == (settings, BOARD)
    assert ('"hidden"' in manifest.note) == (settings.kind == "windows")
    player = load_player(FileStore(tmp_path), put_model(tmp_path, config), open_table(config, 0).spec)
    assert player.forward(positions(BOARD, 3), np.ones((3, 7), dtype=bool))[0].shape == (3, 7)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kind": "tower", "hidden": (64,)}, "'tower' has no hidden"),
        ({"blocks": 3}, "'mlp' has no blocks"),
        ({"kind": "windows", "channels": 8}, "'windows' has no channels"),
        ({"kind": "windows", "policy_head": "planes"}, "'windows' has no policy_head"),
        ({"options": {"a": 1}}, "'mlp' has no options"),
        ({"kind": "mine:build", "channels": 8}, "'mine:build' has no channels"),
    ],
)
def test_fields_of_another_kind_are_refused(fields: dict, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        NetworkSettings(**fields)


class OwnNetwork(nn.Module):
    """A linear network, with a fault if one is requested."""

    def __init__(self, shape: NetworkShape, fault: str) -> None:
        super().__init__()
        self.logits, self.value = nn.Linear(shape.features, shape.actions), nn.Linear(shape.features, 1)
        self.norm = nn.BatchNorm1d(shape.features) if fault == "batch norm" else nn.Identity()
        self.spare = nn.Linear(2, 2) if fault == "unused" else None
        if fault == "unseeded":
            nn.init.constant_(self.value.bias, float(np.random.default_rng().random()))
        self.fault = fault

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        obs = self.norm(obs) - obs.mean(dim=0) * (self.fault == "mixes rows")
        logits, value = self.logits(obs), self.value(obs).squeeze(-1)
        if self.fault == "infinite":
            logits = logits / (obs[:, :1] * 0)
        if self.fault == "constants":
            logits = nn.functional.linear(obs, torch.ones(logits.shape[1], obs.shape[1])) + logits
        if self.fault == "picky" and len(obs) > 2:
            raise ValueError("too many")
        return (logits.double() if self.fault == "float64" else logits), value


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("faulty_networks")
    module.build = lambda shape, options: OwnNetwork(shape, options.get("fault", ""))
    module.column = lambda shape, options: nn.Linear(shape.features, shape.actions)
    monkeypatch.setitem(sys.modules, "faulty_networks", module)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("fault", "where", "what"),
    [
        ("batch norm", "forward", "train"),
        ("unused", "spare.weight", "no gradient"),
        ("unseeded", "factory", "different parameters"),
        ("mixes rows", "forward", "other positions"),
        ("infinite", "logits", "finite"),
        ("float64", "logits", "float64"),
        ("constants", "bfloat16", "dtype"),
        ("picky", "forward", "ValueError: too many"),
    ],
)
def test_check_of_a_faulty_network_finds_it(fault: str, where: str, what: str) -> None:
    findings = check_network(NetworkSettings(kind="faulty_networks:build", options={"fault": fault}), BOARD)
    assert any(finding.where == where and what in finding.what for finding in findings), findings
    assert all(finding.hint for finding in findings)


@pytest.mark.usefixtures("own")
def test_check_of_a_sound_network_finds_nothing() -> None:
    sound = NetworkSettings(kind="faulty_networks:build")
    for settings, shape in ((sound, BOARD), *KINDS):
        assert check_network(settings, shape) == []


def test_more_layers_than_parameters_are_refused_unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = init_policy(TOWER, BOARD, 0)
    monkeypatch.setattr("flyball.app.learning.network._build", lambda *_, **__: pytest.fail("it takes memory"))
    with pytest.raises(BadParameters, match="do not fit"):
        load_network(TOWER.replace(blocks=len(parameters) + 1), BOARD, parameters)


class Overflowing(OwnNetwork):
    """Values that float32 can hold and bfloat16 rounds up to infinity."""

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits, value = super().forward(obs)
        return logits, value * 0 + torch.finfo(torch.float32).max * (1 + value - value.detach())


@pytest.mark.usefixtures("own")
def test_check_finds_one_output_that_bfloat16_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["faulty_networks"], "large", lambda shape, _: Overflowing(shape, ""), False)
    findings = check_network(NetworkSettings(kind="faulty_networks:large"), BOARD)
    assert ("bfloat16", "some outputs are not finite") in [(finding.where, finding.what) for finding in findings]


class NamedArguments(OwnNetwork):
    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        layer = self.logits
        return nn.functional.linear(input=obs, weight=layer.weight, bias=layer.bias), self.value(obs).squeeze(-1)


@pytest.mark.usefixtures("own")
def test_network_with_named_arguments_plays_like_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["faulty_networks"], "named", lambda shape, _: NamedArguments(shape, ""), False)
    named, plain = (NetworkSettings(kind=f"faulty_networks:{name}") for name in ("named", "build"))
    assert check_network(named, BOARD) == []
    obs = positions(BOARD, 100)
    assert np.array_equal(policy_of(named, BOARD).outputs(obs), policy_of(plain, BOARD).outputs(obs))


@pytest.mark.usefixtures("own")
def test_own_network_that_cannot_be_trained_or_called_is_refused(tmp_path: Path) -> None:
    settings = NetworkSettings(kind="faulty_networks:build", options={"fault": "unused"})
    config = GAMES["connect_four_2p"].replace(network=settings)
    with pytest.raises(BadNetwork, match=r"no gradient reaches spare\.weight, spare\.bias"):
        train(train_spec(tmp_path, config, put_model(tmp_path, config), games=4), ignore)
    settings = NetworkSettings(kind="faulty_networks:column")
    with pytest.raises(BadNetwork, match="is a Linear whose outputs"):
        init_policy(settings, BOARD, 0)
    [finding] = check_network(settings, BOARD)
    assert finding.where == "factory"


SMALL = NetworkSettings(hidden=(16, 8))
SHAPE = NetworkShape(6, 5)


def small_policy(seed: int = 1) -> Policy:
    return Policy(SMALL, SHAPE, init_policy(SMALL, SHAPE, seed))


def random_batch(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, 5)) < 0.5
    mask[:, 2] = True
    return rng.random((rows, 6), dtype=np.float32), mask


def test_initial_weights_are_orthogonal_and_nearly_uniform():
    state = init_policy(NetworkSettings(hidden=(32, 32)), NetworkShape(32, 4), seed=3)
    for name, gain in (("trunk.0", 2**0.5), ("trunk.1", 2**0.5), ("policy_head", 0.01), ("value_head", 1.0)):
        weight = state[f"{name}.weight"]
        expected = gain**2 * torch.eye(len(weight))
        assert torch.allclose(weight @ weight.T, expected, atol=1e-5), name
        assert not state[f"{name}.bias"].any()
    network = ActorCritic(NetworkSettings(), NetworkShape(270, 52))
    assert sum(tensor.numel() for tensor in network.parameters()) == 109_109
    obs, mask = random_batch(50)
    log_probs, _ = small_policy().forward(obs, mask)
    uniform = -np.log(mask.sum(axis=1))
    assert np.abs(log_probs - uniform[:, None])[mask].max() < 0.1


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
def test_illegal_actions_have_probability_exactly_zero(temperature):
    obs, mask = random_batch(100)
    log_probs, _ = small_policy().forward(obs, mask, temperature)
    assert np.isfinite(log_probs).all()
    assert (np.exp(log_probs)[~mask] == 0).all()
    assert np.allclose(np.exp(log_probs).sum(axis=1), 1, atol=1e-5)


def test_temperature_divides_the_logits():
    obs, mask = random_batch(20)
    mask[:] = True
    policy = small_policy()
    plain, _ = policy.forward(obs, mask)
    cold, _ = policy.forward(obs, mask, temperature=0.01)
    steep = plain.astype(np.float64) * 100
    expected = steep - np.log(np.exp(steep - steep.max(1, keepdims=True)).sum(1, keepdims=True)) - steep.max(1)[:, None]
    assert np.allclose(cold, expected, atol=1e-3)


def test_unfit_rows_bytes_and_shapes_are_refused():
    obs, mask = random_batch(4)
    mask[3] = False
    with pytest.raises(NoLegalAction, match="Row 3"):
        small_policy().forward(obs, mask)
    with pytest.raises(BadParameters) as refused:
        bytes_to_parameters(b"not a model")
    assert refused.value.hint
    with pytest.raises(BadParameters, match="do not fit"):
        Policy(SMALL, NetworkShape(7, 5), init_policy(SMALL, SHAPE, seed=1))


def test_policy_is_a_snapshot_that_takes_bytes():
    state = init_policy(SMALL, SHAPE, seed=1)
    policy = Policy(SMALL, SHAPE, state)
    obs, mask = random_batch(3)
    before = policy.forward(obs, mask)
    for tensor in state.values():
        tensor.add_(1.0)
    assert np.array_equal(before[0], policy.forward(obs, mask)[0])
    obs = np.random.default_rng(0).integers(0, 2, (7, 6), dtype=np.uint8)
    mask = np.ones((7, 5), dtype=bool)
    expected = small_policy().forward(obs.astype(np.float32), mask)
    obs.flags.writeable = mask.flags.writeable = False
    for given, wanted in zip(small_policy().forward(obs, mask), expected, strict=True):
        assert np.array_equal(given, wanted)


def test_threads_of_pytorch_are_set_in_the_block_alone() -> None:
    before = torch.get_num_threads()
    with threads(before + 2):
        assert torch.get_num_threads() == before + 2
    assert torch.get_num_threads() == before
