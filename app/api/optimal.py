"""The share of a model's moves that are optimal. Only games with a solver have it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from flyball.app.api.arguments import Count, Seed, Temperature, check_arguments
from flyball.app.api.opponents import EvaluationRequest, evaluation_request, load_requested
from flyball.app.api.runs import Say, silent
from flyball.app.config import FrozenModel, GameConfig, Precision
from flyball.app.core import ConfigKey, Record, Tabular, derive_seed, figure_text
from flyball.app.games import open_table
from flyball.app.learning.network import threads
from flyball.app.play.optimal import OptimalShare, optimal_share, saved_positions
from flyball.app.status.summary import show_rate

POSITIONS = 2000
"""Default number of test positions: the share's 95% interval is then at most 2.2 points to each side."""

_REPORTED = 200  # positions between lines of progress


class OptimalResult(Tabular, FrozenModel):
    """The share of a model's moves that are optimal."""

    config: ConfigKey
    rules: str
    model: str
    seed: int
    device: str
    precision: Precision
    temperature: float
    optimal: OptimalShare

    def headline(self) -> str:
        """See ``Tabular``."""
        return f"optimal moves of {self.config}, {figure_text(self.model)}: {show_rate(self.optimal.all)}"

    def tables(self) -> dict[str, Sequence[Record]]:
        """See ``Tabular``."""
        shares = {"all": self.optimal.all, "hard": self.optimal.hard}
        rows = [{"positions": name, **share.model_dump()} for name, share in shares.items() if share]
        return {"optimal": rows}


def measure_optimal(request: EvaluationRequest, count: int) -> OptimalResult:
    """Measure the share of a model's moves that are optimal.

    The ``count`` test positions are drawn from the request's seed. Raises ``NoSolver``, ``TooFewPositions``, or the
    errors of ``fetch_player``.
    """
    config = request.config
    with TemporaryDirectory(prefix="flyball-eval-") as folder:
        model, player = load_requested(request, folder)

        def progress(solved: int) -> None:
            if solved % _REPORTED == 0:
                request.say(f"{solved}/{count} positions solved")

        positions = saved_positions(config, count, request.seed, progress)
        temperature = config.evaluation.temperature
        share = optimal_share(config, player, positions, temperature, derive_seed(request.seed, "optimal", model))
    return OptimalResult(
        config=config.key,
        rules=open_table(config, 0).spec.rules_version,
        model=model,
        seed=request.seed,
        device=request.device,
        precision=request.precision,
        temperature=temperature,
        optimal=share,
    )


def optimal_moves(
    model: str | Path,
    game: str | GameConfig | None = None,
    *,
    positions: int = POSITIONS,
    seed: int = 0,
    temperature: float = 0.0,
    device: str = "cpu",
    precision: Precision = "float32",
    run: str | Path = "run",
    config_file: str | Path | None = None,
    progress: Say = silent,
) -> OptimalResult:
    """Return the share of a model's moves that are optimal.

    `flyball eval --optimal` does the same.

    Args:
        positions: number of test positions.
        seed: of the test positions, and of draws at a temperature.
        temperature: of the model; 0 is greedy.

    See ``evaluate`` for the other arguments. Raises the errors of ``evaluate``, ``NoSolver`` or ``TooFewPositions``.

    >>> flyball.optimal_moves("solver", "tic_tac_toe_2p", positions=100).optimal.all.mean
    1.0
    """
    check_arguments(Count, positions=positions)
    check_arguments(Seed, seed=seed)
    check_arguments(Temperature, temperature=temperature)
    request = evaluation_request(
        model, game, run, config_file, temperature=temperature, device=device, precision=precision, say=progress
    )
    with threads(1):
        return measure_optimal(replace(request, seed=seed), positions)
