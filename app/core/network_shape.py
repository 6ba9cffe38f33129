"""The shape of a game, as a network sees it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # because every command imports this module, and few need NumPy
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class NetworkShape:
    """Sizes of a network's inputs and outputs. Observations are [N, D], logits [N, A] and values [N]."""

    features: int  # D
    actions: int  # A
    planes: tuple[int, int, int] | None = None  # (C, H, W): the first C x H x W features; any others are scalars
    # Divisor of the features, or one a feature, applied before the network's own ``forward``. A model brings its own,
    # so a model fits a game of another.
    scale: float | tuple[float, ...] = field(default=1.0, compare=False)
    action_planes: int = 0  # P, the kinds of actions of a cell; 0: the game's actions do not belong to cells
    # Place [A] of each action in H x W x P. Only a game's shape has it, because a model's parameters hold it.
    action_places: "NDArray[np.int64] | None" = field(default=None, compare=False, repr=False)
    encoding: str = ""  # names the observations if the game has several

    def __str__(self) -> str:
        grid = f" in planes of {' x '.join(map(str, self.planes))}" if self.planes else ""
        divisor = "a number each" if isinstance(self.scale, tuple) else f"{self.scale:g}"
        scaled = "" if self.scale == 1 else f" divided by {divisor}"
        kinds = f" of {self.action_planes} kinds" if self.action_planes else ""
        encoded = f" ({self.encoding})" if self.encoding else ""
        return f"{self.features} features{encoded}{grid}{scaled} and {self.actions} actions{kinds}"

    @property
    def scalars(self) -> int:
        """Number of features after the planes; D without planes."""
        channels, height, width = self.planes or (0, 0, 0)
        return self.features - channels * height * width
