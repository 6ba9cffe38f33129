"""The curves of a run, wherever its settings ask for them."""

from flyball.app.config import Deployment, RunFolder
from flyball.app.events import Event, Payload
from flyball.app.telemetry.curves import Curves, TensorBoardCurves
from flyball.app.telemetry.wandb_runs import WandbCurves


class RunCurves(Curves):
    """Writes points for TensorBoard and perhaps to Weights & Biases.

    W&B receives points if ``deployment.wandb`` asks for it. ``fresh_id`` becomes part of the IDs of new W&B runs.
    Raises ``NoWandb``.
    """

    def __init__(self, folder: RunFolder, deployment: Deployment, fresh_id: str) -> None:
        self._folder = folder.path.absolute()
        self._all: list[Curves] = [TensorBoardCurves(folder.curves)]
        if deployment.wandb != "off":
            group = folder.path.absolute().name
            self._all.append(WandbCurves(folder.curves, group, fresh_id, deployment.wandb))

    def take(self, event: Event[Payload]) -> None:
        """See ``Curves.take``.

        Nothing is written while the run folder is missing: it was moved, and would get a stub under its old name.
        """
        if not self._folder.is_dir():
            return
        for curves in self._all:
            curves.take(event)

    def flush(self) -> None:
        """See ``Curves.flush``."""
        for curves in self._all:
            curves.flush()

    def close(self) -> None:
        """See ``Curves.close``."""
        for curves in self._all:
            curves.close()
