"""Fast inference for play: no gradients, both heads in one multiplication, outputs independent of the batch.

Where the CPU has AVX-512, oneDNN computes the linear layers. MKL would sum a row's products there in an order that
depends on the number of rows. A network's output for a position would then depend on how many others are in the batch,
and a game on the games played beside it. oneDNN keeps one order from ``FEWEST`` rows on. On processors other than
Intel's it is also faster, because MKL uses only AVX2 there. ``torch.compile`` replaces linear layers by the same oneDNN
operation. The operation is private to PyTorch; where it is missing, MKL computes the layers.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from app.config import NetworkSettings
from app.core import FlyballError
from app.learning.network import Parameters, load_network, masked_log_probs

_AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if _AVX512 else None

FEWEST = 4  # rows; with fewer, both libraries sum in another order
STEP = 64  # rows; padded to multiples, because oneDNN compiles for each number, as slowly as it multiplies


class NoLegalAction(FlyballError):
    """A mask row without a legal action."""


class Policy:
    """A thread-safe snapshot of an ``ActorCritic`` for play; it copies the parameters.

    The network runs on ``device``; inputs and outputs are arrays in main memory. Raises ``BadParameters`` when the
    tensors do not fit the settings.
    """

    def __init__(
        self, settings: NetworkSettings, obs_size: int, actions: int, parameters: Parameters, device: str = "cpu"
    ) -> None:
        self.obs_size = obs_size
        self.actions = actions
        self._device = device
        network = load_network(settings, obs_size, actions, parameters).to(device)
        self._trunk = [_copied(layer) for layer in network.trunk]
        heads = [_copied(network.policy_head), _copied(network.value_head)]
        self._heads = torch.cat([w for w, _ in heads]), torch.cat([b for _, b in heads])

    def forward(
        self, obs: NDArray[np.generic], mask: NDArray[np.bool_], temperature: float = 1.0
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return log-probabilities [N, A] and values [N], both float32.

        Observations [N, D] are float32 or uint8. Illegal actions get about -1e9, whose probability is exactly 0. Raises
        ``NoLegalAction`` when a row of the mask [N, A] is empty.
        """
        if not mask.any(axis=1).all():
            raise NoLegalAction(
                f"Row {int(np.argmin(mask.any(axis=1)))} of the legal mask is empty.",
                hint="Ask only for seats that are to move in games that are not over.",
            )
        with torch.inference_mode():
            output = self._forward(obs)
            logits = output[:, : self.actions]
            if temperature != 1.0:
                logits = logits / temperature
            log_probs = masked_log_probs(logits, _tensor(mask).to(self._device))
            return log_probs.cpu().numpy(), output[:, self.actions].cpu().numpy()

    def outputs(self, obs: NDArray[np.generic]) -> NDArray[np.float32]:
        """Return the raw outputs [N, A + 1]: a logit for each action, legal or not, then the value."""
        with torch.inference_mode():
            outputs: NDArray[np.float32] = self._forward(obs).cpu().numpy()
            return outputs

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Return each layer's weight matrix [inputs, outputs], with separate entries for the two heads."""
        matrices = {f"trunk.{number}": weight for number, (weight, _) in enumerate(self._trunk)}
        heads = self._heads[0]
        matrices |= {"policy_head": heads[: self.actions], "value_head": heads[self.actions :]}
        return {name: weight.t().cpu().numpy() for name, weight in matrices.items()}

    def _forward(self, obs: NDArray[np.generic]) -> Tensor:
        features = padded(_tensor(obs).to(self._device))
        for weight, bias in self._trunk:
            features = linear(features, weight, bias).relu_()
        return linear(features, *self._heads)[: len(obs)]


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``inputs`` [N, K] times transposed ``weight`` [M, K] plus ``bias`` [M], without gradients."""
    if _ONEDNN and inputs.is_cpu:
        product: Tensor = _ONEDNN(inputs, weight, bias, "none", [], "")
        return product
    return functional.linear(inputs, weight, bias)


def padded(features: Tensor) -> Tensor:
    """Return ``features`` [N, K] as float32, padded with the rows of zeros that ``linear`` needs."""
    rows = len(features)
    wanted = max(rows, FEWEST)
    if _ONEDNN and features.is_cpu:  # a multiple of STEP, below it a power of two
        wanted = -(-rows // STEP) * STEP if rows > STEP // 2 else max(FEWEST, 1 << (rows - 1).bit_length())
    if wanted == rows:
        return features.float()
    more = torch.empty(wanted, features.shape[1], device=features.device)
    more[:rows], more[rows:] = features, 0
    return more


def _copied(layer: torch.nn.Module) -> tuple[Tensor, Tensor]:
    assert isinstance(layer, torch.nn.Linear)
    return layer.weight.detach().clone(), layer.bias.detach().clone()


def _tensor(array: NDArray[np.generic]) -> Tensor:
    # Read-only arrays, as in shards read from disk, are copied, because PyTorch warns of tensors that share them.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
