"""Actor-critic networks, built in or the user's, and their serialisation."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from flyball.app.config import MLP, PLANES, TOWER, WINDOWS, NetworkSettings
from flyball.app.core import FlyballError, NetworkShape, load_plugin
from flyball.app.core.legal import LegalActions
from flyball.app.learning.dense import ActorCritic, Windows
from flyball.app.learning.devices import to_device
from flyball.app.learning.layers import allocate
from flyball.app.learning.tower import Tower

MASKED_LOGIT = -1e9  # acts as minus infinity: the probability underflows to exactly 0, and the gradient is 0, not NaN
PLUGINS = "flyball.networks"
PROBED = 2  # observations that a user's network is tried with
NO_OPTIONS = " It got no options; write them as the table [games.KEY.network.options], and check the network of KEY."

Parameters = dict[str, Tensor]


class BadParameters(FlyballError, code="usage"):
    """Bytes that are not parameters, or parameters of another network."""


class BadNetwork(FlyballError):
    """A network that cannot be built or used for a game."""


NETWORKS: Mapping[str, type[ActorCritic | Tower]] = {MLP: ActorCritic, WINDOWS: Windows, TOWER: Tower}


def visible_shape(settings: NetworkSettings, game: NetworkShape) -> NetworkShape:
    """Return the shape that a network sees of a game.

    Only a policy head of planes sees the actions' planes, and an mlp sees no planes at all. So a network fits the game
    whether or not these planes were known when the network was made.
    """
    visible = game if settings.policy_head == PLANES else replace(game, action_planes=0, action_places=None)
    return replace(visible, planes=None) if settings.kind == MLP else visible


def init_policy(settings: NetworkSettings, shape: NetworkShape, seed: int) -> Parameters:
    """Draw a network's first parameters from a seed. Raises ``BadNetwork`` or ``UnknownPlugin``."""
    return {name: tensor.detach() for name, tensor in _build(settings, shape, seed).state_dict().items()}


def parameters_size(settings: NetworkSettings, shape: NetworkShape) -> int:
    """Return the bytes of a network's parameters. Raises ``BadNetwork`` or ``UnknownPlugin``."""
    return sum(tensor.nbytes for tensor in _build(settings, shape, seed=None).state_dict().values())


def load_network(settings: NetworkSettings, shape: NetworkShape, parameters: Parameters) -> nn.Module:
    """Build a network that holds a copy of ``parameters``.

    It takes observations [N, D] as games give them, uint8 or float32, and returns logits [N, A], unmasked, and values
    [N]. It stays in evaluation mode: PPO compares the policy that played with the one that learns, so dropout and batch
    statistics would look like a change of the policy.

    Raises ``BadParameters`` when they do not fit, ``BadNetwork`` or ``UnknownPlugin``.
    """
    try:
        ours = settings.kind in NETWORKS
        network = _sized_network(settings, shape, parameters) if ours else _build(settings, shape, seed=None)
        network.load_state_dict(parameters)
    except (RuntimeError, TypeError) as error:  # TypeError: a size of more than 64 bits
        raise BadParameters(
            f"The parameters do not fit a network of kind {settings} for {shape}.",
            hint="Load a model with the settings in its own manifest; a changed network starts afresh.",
        ) from error
    # A hook, because a module around the network would change the names of its parameters.
    network.register_forward_pre_hook(partial(_typed_and_scaled, scale=shape.scale))
    return network.eval()


def _sized_network(settings: NetworkSettings, shape: NetworkShape, parameters: Parameters) -> nn.Module:
    """Build one of our networks, with undefined parameters of the declared sizes. Raises ``RuntimeError``."""
    if max(len(settings.hidden), settings.residual, settings.blocks) > len(parameters):
        raise RuntimeError("more layers are declared than there are parameters")
    network = _build(settings, shape, seed=None)
    if any(tensor.shape != parameters[name].shape for name, tensor in network.named_parameters() if name in parameters):
        raise RuntimeError("other sizes are declared than parameters have")
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            allocate(layer)
    return network


def _typed_and_scaled(network: nn.Module, args: tuple[Tensor], scale: float | tuple[float, ...]) -> tuple[Tensor]:
    """Return the observations divided by ``scale``, in the type of the network's parameters."""
    return (scaled(args[0].to(next(network.parameters()).dtype), scale),)


def scaled(features: Tensor, scale: float | tuple[float, ...]) -> Tensor:
    """Return features [N, D or more] divided by ``scale``, one number for all or for each of the first D."""
    if scale == 1:
        return features
    if not isinstance(scale, tuple):
        return features / scale
    divisors = torch.ones(features.shape[1], dtype=features.dtype if features.is_floating_point() else torch.float32)
    divisors[: len(scale)] = torch.tensor(scale)
    return features / to_device(divisors, features.device)


def _build(settings: NetworkSettings, shape: NetworkShape, seed: int | None) -> nn.Module:
    """Build a network; with a seed, draw its parameters."""
    if settings.kind not in NETWORKS:
        return _own_network(settings, shape, seed or 0)
    if settings.kind != MLP and shape.planes is None:
        raise BadNetwork(
            f"A network of kind {settings.kind!r} needs planes, and this game has none: its observations are not a "
            "grid of cells.",
            hint="Use network.kind = 'mlp' or a network of your own; a table of your own may name its planes.",
        )
    if settings.policy_head == PLANES and not shape.action_planes:
        raise BadNetwork(
            "A policy head of planes needs actions that belong to cells of the board, and this game does not say so.",
            hint="Use network.policy_head = 'dense'; a table of your own may name its action_planes.",
        )
    network = NETWORKS[settings.kind](settings, shape)
    if seed is not None:
        network.initialise(torch.Generator().manual_seed(seed))
    return network


def _own_network(settings: NetworkSettings, shape: NetworkShape, seed: int) -> nn.Module:
    """Build a user's network, its parameters drawn from a seed. Raises ``BadNetwork`` or ``UnknownPlugin``."""
    factory, probe = load_plugin(PLUGINS, settings.kind, tuple(NETWORKS)), torch.zeros(PROBED, shape.features)
    # PyTorch's layers draw their first parameters from the global generator, so it is seeded here and restored after.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            network = factory(shape, dict(settings.options))
            with torch.no_grad():
                logits, values = network.eval()(probe)
            sizes = tuple(logits.shape), tuple(values.shape)
        except Exception as error:  # the user's code may raise anything
            raise BadNetwork(
                f"The network {settings.kind} cannot be built or run: {type(error).__name__}: {error}.",
                hint="It is called as factory(shape, options), and its result as logits, values = network(obs)."
                + ("" if settings.options else NO_OPTIONS),
            ) from error
    expected = (PROBED, shape.actions), (PROBED,)
    if not isinstance(network, nn.Module) or not list(network.parameters()) or sizes != expected:
        raise BadNetwork(
            f"The network {settings.kind} is a {type(network).__name__} whose outputs for {PROBED} observations are "
            f"{sizes}, not {expected}.",
            hint="It has to be a torch.nn.Module with parameters that returns logits [N, A] and values [N].",
        )
    return network


def masked_log_probs(logits: Tensor, mask: Tensor) -> Tensor:
    """Return log-probabilities [N, A], float32, over a mask's actions, with ``MASKED_LOGIT`` for all others."""
    # In float32, because MASKED_LOGIT overflows float16 and differences of large logits vanish in bfloat16.
    return torch.log_softmax(logits.float().masked_fill(~mask, MASKED_LOGIT), dim=-1)


def candidates(logits: Tensor, legal: Tensor | LegalActions, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, mask and action indices [N, 1] among candidate actions.

    With a mask [N, A] as ``legal``, all A actions are candidates. With lists, only the legal actions of each row are,
    and logits and mask are [N, L] for a longest list of L. Functions of all logits would take longer than a small
    network.
    """
    if not isinstance(legal, LegalActions):
        return logits, legal, action
    counts = legal.counts
    mask = np.arange(counts.max()) < counts[:, None]
    columns = np.full(mask.shape, -1, dtype=np.int64)
    columns[mask] = legal.listed
    legal_mask, actions = (to_device(torch.from_numpy(array), logits.device) for array in (mask, columns))
    index = (actions == action).int().argmax(dim=1, keepdim=True)
    return logits.gather(1, actions.clamp(min=0)), legal_mask, index


def parameters_to_bytes(state: Mapping[str, Tensor]) -> bytes:
    """Return tensors as a safetensors file. The tensors' order and device do not change the bytes."""
    # Each tensor is copied, because the format forbids tensors that share memory.
    copies = {name: state[name].detach().cpu().clone(memory_format=torch.contiguous_format) for name in sorted(state)}
    return safetensors.torch.save(copies)


def bytes_to_parameters(data: bytes) -> Parameters:
    """Return the tensors of a safetensors file, sorted by name.

    Raises ``BadParameters`` for anything but a safetensors file. Damage inside a tensor is not noticed here: compare
    the hash first (``flyball.app.store`` does).
    """
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, ValueError) as error:
        raise BadParameters(
            f"These {len(data)} bytes are no safetensors file ({error}).",
            hint="Restore the file from another node or an earlier checkpoint.",
        ) from error
    return dict(sorted(tensors.items()))  # the library's order differs from call to call, which would reach trainers


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Give PyTorch ``count`` threads in the block: small batches need one, which also keeps the order of sums."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
