"""Settings of simulated runs of any configurations."""

from collections.abc import Sequence

from flyball.app.config import GameConfig, RunSettings, nest
from flyball.app.simulation.settings import PACE, PLAYED_ALONE


def simulated_settings(nodes: int, configs: Sequence[GameConfig]) -> RunSettings:
    """Return the settings of a simulation of these configurations. Models play only themselves."""
    width = len(str(nodes))
    workers = [f"selfplay_worker@node{number:0{width}}" for number in range(1, nodes + 1)]
    tree = nest({**PACE, **PLAYED_ALONE})
    return RunSettings.model_validate({**tree, "selfplay_workers": workers, "configs": configs})
