"""``flyball train`` of text games: the backend's jobs, repeated in one process."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from app.config import Compute, Document, FrozenModel, GameConfig, TextServers, flatten, nest
from app.config.devices import Device, Precision
from app.config.layers import COMMAND_LINE, change
from app.core import RANDOM, FlyballError, ModelHash, derive_seed, reading, writing
from app.engine import JsonObject
from app.language import jobs, selfplay
from app.language.base_files import check_settings
from app.language.models import GENERATORS
from app.language.rollout import TextPlayer
from app.language.selfplay import generator_for, play_match, player_of
from app.language.text_games import open_text_table
from app.learning.devices import require
from app.learning.network import threads
from app.play.match_statistics import match_statistics
from app.store import FileStore

STATE, REPORT = "state.json", "report.json"
Say = Callable[[str], None]


class UnusableTraining(FlyballError):
    """A folder or settings unfit for training a text game."""


class TextRunExists(UnusableTraining, code="run_exists"):
    """A folder that holds a training already."""


class LoopSettings(FrozenModel):
    """Settings of ``flyball train`` for text games, in addition to the configuration."""

    iterations: int = Field(30, ge=1, description="iterations of playing and learning")
    evaluate_every: int = Field(5, ge=1, description="iterations between evaluations")
    evaluation_games: int = Field(100, ge=2, description="games of an evaluation against each bot")
    final_games: int = Field(400, ge=2, description="games of the last evaluation against each bot")
    self_play: float = Field(0.5, ge=0, le=1, description="share of the games against itself; bots play the others")
    device: Device = "cpu"
    precision: Precision = "auto"
    threads: int = Field(1, ge=1, description="threads of the arithmetic; a large base model gains from several")


DOCUMENT = Document([LoopSettings, GameConfig], see="See: flyball train GAME --settings", left_out=("key", "imports"))


class TextRun(FrozenModel):
    """State of a run after an iteration."""

    config: GameConfig
    loop: LoopSettings
    seed: int
    iteration: int
    first: ModelHash
    model: ModelHash
    evaluations: tuple[dict[str, Any], ...] = ()


def text_settings(config: GameConfig, values: Mapping[str, Any]) -> tuple[GameConfig, LoopSettings]:
    """Return configuration and loop settings, changed by ``values``.

    The keys of ``values`` are fields of ``LoopSettings``, or dotted keys of the configuration. Raises ``BadSettings``.
    """
    changes = {key: value for key, (value, _) in DOCUMENT.layer(values, COMMAND_LINE).items()}
    loop = {key: changes.pop(key) for key in LoopSettings.model_fields if key in changes}
    tree = nest(change(flatten(config.model_dump()), changes))
    return (
        DOCUMENT.validated(GameConfig, tree, {}, other=COMMAND_LINE),
        DOCUMENT.validated(LoopSettings, loop, {}, other=COMMAND_LINE),
    )


def train_text(
    config: GameConfig,
    folder: Path,
    values: Mapping[str, Any],
    seed: int | None,
    *,
    resume: bool,
    say: Say,
    servers: TextServers | None = None,
) -> JsonObject:
    """Train an adapter in ``folder``, or continue its training; return the report.

    The report is written to the folder, too. ``servers`` generate the text, if there are any; learning is in this
    process.

    Raises ``BadSettings``, ``UnusableTraining``, ``UnusableFile``, and what the backend's jobs raise.
    """
    place = _Place(str((folder / "models").absolute()), servers)
    resumed = _resumed(folder, values) if resume else None
    changed, loop = (resumed.config, resumed.loop) if resumed else text_settings(config, values)
    with threads(loop.threads):
        run = resumed or _begun(changed, loop, folder, seed or 0, place=place, say=say)
        while run.iteration < loop.iterations:
            run = _iterate(run, place, say)
            last = run.iteration == loop.iterations
            if last or run.iteration % loop.evaluate_every == 0:
                games = loop.final_games if last else loop.evaluation_games
                run = run.replace(evaluations=(*run.evaluations, _evaluated(run, place, games, say)))
            _save(folder, run)
    return _report(run)


@dataclass(frozen=True, slots=True)
class _Place:
    """A run's model store, and the servers of its text, if any."""

    store: str
    servers: TextServers | None

    def spec(self, config: GameConfig, loop: LoopSettings, seed: int) -> JsonObject:
        """Return the fields that the specs of all jobs share."""
        compute = self.compute(loop).model_dump(mode="json")
        return {"store": self.store, "config": config.model_dump(mode="json"), "seed": seed, **compute}

    def compute(self, loop: LoopSettings) -> Compute:
        """Return the device, precision and servers of games and updates."""
        return Compute(device=loop.device, precision=loop.precision, text_servers=self.servers)


def _begun(config: GameConfig, loop: LoopSettings, folder: Path, seed: int, *, place: _Place, say: Say) -> TextRun:
    if (folder / STATE).exists():
        raise TextRunExists(f"{folder} holds a run.", hint="Resume it, or choose another folder.")
    check_settings(config, open_text_table(config, 0).spec)
    require(loop.device)
    folder.mkdir(parents=True, exist_ok=True)
    say(f"Making the base model and the first adapter of {config.key}.")

    def taught(progress: JsonObject) -> None:
        say(f"lessons {progress['epoch']}/{progress['epochs']}: loss {progress['metrics']['lesson_loss']:.3f}")

    made = jobs.initialise(place.spec(config, loop, seed), taught)
    run = TextRun(config=config, loop=loop, seed=seed, iteration=0, first=made["model"], model=made["model"])
    run = run.replace(evaluations=(_evaluated(run, place, loop.evaluation_games, say),))
    _save(folder, run)
    return run


def _save(folder: Path, run: TextRun) -> None:
    """Save a checkpoint, and the report so far."""
    _write(folder / STATE, run.model_dump_json())
    _write(folder / REPORT, json.dumps(_report(run), indent=2))


def _report(run: TextRun) -> JsonObject:
    return {
        "config": run.config.key,
        "seed": run.seed,
        "model": run.model,
        "iterations": run.iteration,
        "evaluations": run.evaluations,
    }


def read_run(folder: Path) -> TextRun:
    """Return the state of the training in a folder. Raises ``UnusableFile``."""
    path = folder / STATE
    with reading(path):
        return TextRun.model_validate_json(path.read_text())


def _resumed(folder: Path, values: Mapping[str, Any]) -> TextRun:
    run = read_run(folder)
    changed, loop = text_settings(run.config, run.loop.model_dump() | dict(values))
    if changed.language.base != run.config.language.base:
        raise UnusableTraining("language.base cannot change: adapters fit no other.", hint="Begin another run.")
    return run.replace(config=changed, loop=loop)


def _iterate(run: TextRun, place: _Place, say: Say) -> TextRun:
    config, number = run.config, run.iteration + 1
    games, others = config.selfplay.games_per_request, config.players - 1
    bots = config.builtins
    each = int(games * (1 - run.loop.self_play)) // len(bots)
    spec = place.spec(config, run.loop, derive_seed(run.seed, "train", number))
    played = selfplay.play(
        spec
        | {
            "model": run.model,
            "games": games,
            "temperature": config.selfplay.temperature,
            "worker": "train",
            "lineups": [{"opponents": (bot,) * others, "games": each} for bot in bots if each],
        },
        _quiet,
    )
    result = jobs.train(
        spec
        | {
            "base_model": run.model,
            "shards": [played["shard"]],
            "step": run.iteration,
            "learning_rate": config.learning_rate * (1 - run.iteration / run.loop.iterations),
            "epochs": config.epochs,
        },
        _quiet,
    )
    FileStore(Path(place.store)).delete(played["shard"])
    metrics = result["metrics"]
    say(
        f"iteration {number}/{run.loop.iterations}: {played['rows']} answers in {played['seconds']:.1f} s, reward "
        f"{metrics['reward']:+.3f}, divergence {metrics['divergence']:.4f}, illegality {metrics['illegality']:.4f}, "
        f"surprise {metrics['surprise']:.3f}, learned in {metrics['seconds']:.1f} s"
    )
    return run.replace(iteration=number, model=result["model"])


def _evaluated(run: TextRun, place: _Place, games: int, say: Say) -> dict[str, Any]:
    """Return scores against each bot, and the legality of free answers.

    Free answers are drawn without constraint; their legality is the share of legal ones.
    """
    config = run.config
    even = games // config.players * config.players
    with GENERATORS.lock:
        generator = generator_for(FileStore(Path(place.store)), config, [run.model], place.compute(run.loop))
        hero = player_of(config, run.model, config.evaluation.temperature)
        scores, free = {}, TextPlayer(hero.adapter, None, 1.0, constrained=False)
        seed = derive_seed(run.seed, "evaluation", run.iteration)
        for bot in dict.fromkeys((RANDOM, *config.builtins)):
            found, _ = play_match(
                config, [hero, player_of(config, bot, config.evaluation.temperature)], generator, seed=seed, games=even
            )
            scores[bot] = match_statistics(found, config.players).score.mean
        _, said = play_match(config, [free, TextPlayer(bot=RANDOM)], generator, seed=seed, games=even)
    legal = sum(one.legal for one in said) / len(said)
    against = ", ".join(f"{score:.1%} against {bot}" for bot, score in scores.items())
    say(f"after iteration {run.iteration}: {against}, {legal:.1%} of free answers legal, {even} games each")
    return {"iteration": run.iteration, "games": even, "scores": scores, "legal": legal}


def _write(path: Path, text: str) -> None:
    with writing(path):
        part = path.with_suffix(".part")
        part.write_text(text)
        part.replace(path)


def _quiet(_progress: JsonObject) -> None:
    """Discard a job's reports."""
