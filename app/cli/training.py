"""``flyball train``: begin or resume a run, show it, and sum it up."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from app.cli.output import note
from app.cli.pipeline_settings import by_key, changed, training_settings
from app.cli.progress import TrainingProgress
from app.cli.run_sinks import check_sinks, open_sinks, report
from app.config import GameConfig
from app.core import FlyballError
from app.pipeline import RunGame, RunHead, RunPlace, TrainingRun, check_start, final_evaluations, run_game

BEGINNING = ("collection.initial_policy", "cloning.", "env.game", "network.")
"""Settings, and tables of them, that a run's first policy is made by."""

SAID_BY_GAME = ("network.obs_dim", "network.action_dim")
"""Of these, another number than the game's is refused anyway."""

QUIET = ("WARNING", "ERROR")


class Interrupted(FlyballError):
    """Somebody pressed Ctrl-C."""


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """Options of the command; ``seed`` ``None``: not given."""

    config: GameConfig
    file: Path | None
    assignments: Sequence[str]
    seed: int | None
    output: Path
    resume: bool


def train_game(request: TrainRequest) -> tuple[dict[str, Any], str]:
    """Train, and return the summary, also in words. Raises ``BadSettings``, and what begins or ends a run."""
    place = RunPlace(request.output)
    head = _resumed(place, request) if request.resume else _new(request)
    settings = head.settings
    check_sinks(place, head)
    game = run_game(request.config, settings)
    check_start(settings, begun=place.state() is not None)
    with place.held():
        if request.resume:
            place.change(head)
        else:
            place.begin(head)
        return _train(place, head, game)


def _train(place: RunPlace, head: RunHead, game: RunGame) -> tuple[dict[str, Any], str]:
    settings = head.settings
    note(f"Run folder {place.path.absolute()}; if interrupted, it goes on by --resume.")
    iterations, logging = settings.collection.num_iterations, settings.logging
    progress = TrainingProgress(iterations, logging.print_frequency, quiet=logging.log_level in QUIET)
    with _going_on_later(place), open_sinks(place, head) as sinks, progress:
        state = TrainingRun(place, game, settings, head.seed, (progress, *sinks), progress.say).run()
        best = place.model(state.best.model)
        finals = final_evaluations(game, game.policy(best, settings.training.device), settings.training, head.seed)
    words = report(place, head, state, finals, game.config.players)
    summary = {
        "config": head.config,
        "seed": head.seed,
        **state.model_dump(mode="json"),
        "final": [asdict(found) for found in finals],
    }
    return summary, words


@contextmanager
def _going_on_later(place: RunPlace) -> Iterator[None]:
    """On Ctrl-C say where the run goes on."""
    try:
        yield
    except KeyboardInterrupt:
        state = place.state()
        done = "before its first iteration" if state is None else f"at the checkpoint after iteration {state.iteration}"
        raise Interrupted(f"Interrupted; the run is {done}.", hint="It goes on by --resume.") from None


def _new(request: TrainRequest) -> RunHead:
    settings = training_settings(request.config, request.file, request.assignments)
    return RunHead(config=request.config.key, seed=request.seed or 0, settings=settings)


def _resumed(place: RunPlace, request: TrainRequest) -> RunHead:
    if request.file is not None or request.seed is not None:
        raise click.UsageError("A run that goes on keeps its settings and seed; --set changes what is left of it.")
    head = place.head()
    if head.config != request.config.key:
        raise click.UsageError(f"The run in {place.path} is one of {head.config}.")
    settings = changed(head.settings, request.assignments)
    if place.state() is not None:
        _check_kept(by_key(head.settings), by_key(settings))
    return head.model_copy(update={"settings": settings})


def _check_kept(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Refuse to change what the first policy was made by: a run that has one goes on with it."""
    for key, value in before.items():
        if key.startswith(BEGINNING) and key not in SAID_BY_GAME and after[key] != value:
            raise click.UsageError(
                f"{key} is {value!r}, and the run has begun with it: for {after[key]!r} begin another one."
            )
