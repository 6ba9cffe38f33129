"""Check of a network: what playing and training rely on."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flyball.app.config import NetworkSettings
from flyball.app.core import Finding, FlyballError, NetworkShape
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import Parameters, init_policy, load_network, parameters_to_bytes

ROWS = 96  # observations that a network is tried with: more than a chunk, and not a multiple of one
TOLERANCE = 1e-4


def check_network(settings: NetworkSettings, shape: NetworkShape, seed: int = 0) -> list[Finding]:
    """Return the faults of a network: built twice from a seed, run in several batches, with one gradient."""
    try:
        parameters, again = (init_policy(settings, shape, seed) for _ in range(2))
        network, policy = load_network(settings, shape, parameters), Policy(settings, shape, parameters)
    except FlyballError as error:
        return [Finding("factory", error.message, error.hint)]
    bits = np.random.default_rng(seed).integers(0, 2, (ROWS, shape.features))
    obs = np.asarray(bits * np.asarray(shape.scale), dtype=np.float32)
    rows = torch.from_numpy(obs)
    try:
        return [
            *_initialisation(parameters, again),
            *_outputs(network, rows),
            *_batches(policy, network, obs),
            *_modes(network, rows),
            *_gradients(network, rows),
            *_bfloat16(network, rows),
        ]
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        hint = "It has to work for any number of observations, also with gradient."
        return [Finding("forward", f"{type(error).__name__}: {error}.", hint)]


def _initialisation(parameters: Parameters, again: Parameters) -> Iterator[Finding]:
    if parameters_to_bytes(parameters) != parameters_to_bytes(again):
        yield Finding(
            "factory",
            "two networks built from one seed have different parameters",
            "Draw parameters with PyTorch only: no other random numbers are seeded when a network is built.",
        )


def _outputs(network: nn.Module, rows: Tensor) -> Iterator[Finding]:
    with torch.no_grad():
        outputs = dict(zip(("logits", "values"), network(rows), strict=True))
    for name, tensor in outputs.items():
        if tensor.dtype != torch.float32:
            yield Finding(name, f"they are {tensor.dtype}, not float32", "Return what layers of float32 compute.")
        if not tensor.isfinite().all():
            yield Finding(name, "some are not finite", "Look for divisions by 0 and masks of infinity.")


def _batches(policy: Policy, network: nn.Module, obs: NDArray[np.float32]) -> Iterator[Finding]:
    """Compare positions' outputs together, in another order, and alone."""
    together, reordered = policy.outputs(obs), policy.outputs(obs[::-1].copy())[::-1]
    with torch.no_grad():
        each = [network(torch.from_numpy(row[None])) for row in obs]
    alone = np.stack([np.append(logits[0].numpy(), value.numpy()) for logits, value in each])
    if not np.allclose(together, alone, rtol=0, atol=TOLERANCE, equal_nan=True):
        yield Finding(
            "forward",
            "a position's outputs depend on the other positions of the batch",
            "Use no layer that mixes rows, such as BatchNorm or attention over the first dimension.",
        )
    elif not np.array_equal(together, reordered, equal_nan=True):
        yield Finding(
            "forward",
            "a position's outputs differ in their last bits by its place in the batch, so a game may differ when "
            "others are played beside it",
            "Prefer nn.Linear and nn.Conv2d to products of your own; or accept that games do not repeat exactly.",
        )


def _modes(network: nn.Module, rows: Tensor) -> Iterator[Finding]:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        evaluated, trained = network(rows), network.train()(rows)
    network.eval()
    if not all(torch.allclose(a, b, atol=TOLERANCE, equal_nan=True) for a, b in zip(evaluated, trained, strict=True)):
        yield Finding(
            "forward",
            "outputs differ between train() and eval()",
            "Networks play and learn in eval(), where Dropout does nothing; use GroupNorm instead of BatchNorm.",
        )


def _gradients(network: nn.Module, rows: Tensor) -> Iterator[Finding]:
    logits, values = network(rows)
    torch.autograd.backward((torch.log_softmax(logits, dim=-1)[:, 0].sum() + values.sum(),))
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            yield Finding(name, "it asks for no gradient", "Register it as a buffer, or let it learn.")
        elif parameter.grad is None or not parameter.grad.any():
            yield Finding(name, "no gradient reaches it", "Use it in forward, and detach nothing on the way.")


def _bfloat16(network: nn.Module, rows: Tensor) -> Iterator[Finding]:
    try:
        with torch.no_grad():
            outputs = network.bfloat16()(rows)
    except RuntimeError as error:
        yield Finding("bfloat16", f"{error}.", "Make tensors of the type that forward is given.")
        return
    if not all(bool(tensor.isfinite().all()) for tensor in outputs):
        yield Finding("bfloat16", "some outputs are not finite", "Keep numbers small, for instance by a LayerNorm.")
