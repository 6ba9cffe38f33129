"""Training runs of language models: the backend's jobs, repeated in one process."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flyball.app.config import Compute, GameConfig, TextServers
from flyball.app.core import RANDOM, BadUsage, ModelHash, derive_seed, writing
from flyball.app.engine import JsonObject
from flyball.app.language import jobs, selfplay
from flyball.app.language.base_files import check_settings
from flyball.app.language.models import GENERATORS
from flyball.app.language.rollout import TextPlayer
from flyball.app.language.selfplay import generator_for, play_match, player_of
from flyball.app.language.text_games import open_text_table
from flyball.app.language.training_settings import LoopSettings, text_settings
from flyball.app.learning.devices import require
from flyball.app.play.match_statistics import match_statistics
from flyball.app.store import Checkpoint, FileStore
from flyball.app.train.iteration import Games, Iteration, Learned
from flyball.app.train.run import Method
from flyball.app.train.state import HEAD, STATE, TrainingFolder, TrainingState

REPORT = "report.json"


class TextRun(TrainingState):
    """State of a run after an iteration, with its settings."""

    config: GameConfig
    loop: LoopSettings
    seed: int
    first: ModelHash
    evaluations: tuple[dict[str, Any], ...] = ()

    @property
    def report(self) -> JsonObject:
        """The report so far."""
        run = {"config": self.config.key, "seed": self.seed, "model": self.model, "iterations": self.iteration}
        return {**run, "evaluations": self.evaluations}


@dataclass(frozen=True, slots=True)
class TextResult:
    """A finished training run."""

    report: JsonObject
    summary: str

    def json(self) -> JsonObject:
        """Return the report."""
        return self.report


@dataclass(eq=False)
class Language(Method[TextRun, str, JsonObject]):
    """The training of a language model's adapter, by GRPO on games against itself and the bots."""

    folder: TrainingFolder
    config: GameConfig
    loop: LoopSettings
    seed: int
    resumed: bool = False
    servers: TextServers | None = None  # they generate the text, if there are any
    say: Callable[[str], None] = lambda _text: None

    def __post_init__(self) -> None:
        self.iterations, self.threads = self.loop.iterations, self.loop.threads
        self.evaluate_every, self.save_every = self.loop.evaluate_every, 1

    def open(self) -> None:
        """See ``Method.open``."""
        if not self.resumed:
            self.folder.check_new()

    def saved(self) -> TextRun | None:
        """See ``Method.saved``."""
        run = read_run(self.folder.path) if self.folder.has(STATE) else None
        return run and run.replace(config=self.config, loop=self.loop)

    def first(self) -> Checkpoint:
        """See ``Method.first``. The base model is stored, too, unless it is user-defined."""
        self.say(f"Making the base model and the first adapter of {self.config.key}.")

        def taught(progress: JsonObject) -> None:
            loss = progress["metrics"]["lesson_loss"]
            self.say(f"lessons {progress['epoch']}/{progress['epochs']}: loss {loss:.3f}")

        return self.folder.model(jobs.initialise(self._spec(self.seed), taught)["model"])

    def begin(self, policy: Checkpoint, evaluation: JsonObject) -> TextRun:
        """See ``Method.begin``."""
        self._show_evaluation(evaluation)
        model = policy.model
        run = TextRun(config=self.config, loop=self.loop, seed=self.seed, iteration=0, first=model, model=model)
        return run.replace(evaluations=(evaluation,))

    def ended(self, state: TextRun) -> str | None:
        """See ``Method.ended``."""
        return "those were all" if state.iteration >= self.iterations else None

    def collect(self, state: TextRun, policy: Checkpoint) -> Games[str]:
        """See ``Method.collect``."""
        config, bots = self.config, self.config.builtins
        games = config.selfplay.games_per_request
        each = int(games * (1 - self.loop.self_play)) // len(bots)
        fields = {
            "model": policy.model,
            "games": games,
            "temperature": config.selfplay.temperature,
            "worker": "train",
            "lineups": [{"opponents": (bot,) * (config.players - 1), "games": each} for bot in bots if each],
        }
        played = selfplay.play(self._spec(self._iteration_seed(state)) | fields, lambda _progress: None)
        return Games(games=played["games"], rows=played["rows"], shard=played["shard"])

    def update(self, state: TextRun, policy: Checkpoint, games: Games[str], lap: Callable[[str], None]) -> Learned:
        """See ``Method.update``. The learning rate falls to 0 over the run."""
        fields = {
            "base_model": policy.model,
            "shards": [games.shard],
            "step": state.iteration,
            "learning_rate": self.config.learning_rate * (1 - state.iteration / self.iterations),
            "epochs": self.config.epochs,
        }
        result = jobs.train(self._spec(self._iteration_seed(state)) | fields, lambda _progress: None)
        FileStore(self.folder.models).delete(games.shard)
        return Learned(self.folder.model(result["model"]), result["metrics"])

    def evaluate(self, policy: Checkpoint, number: int) -> JsonObject:
        """Return scores against each bot, and the share of legal ones among answers drawn without constraint."""
        config, temperature = self.config, self.config.evaluation.temperature
        games = self.loop.final_games if number == self.iterations else self.loop.evaluation_games
        even, seed = games // config.players * config.players, derive_seed(self.seed, "evaluation", number)
        with GENERATORS.lock:
            generator = generator_for(FileStore(self.folder.models), config, [policy.model], self._compute)
            hero = player_of(config, policy.model, temperature)
            scores, free = {}, TextPlayer(hero.adapter, None, 1.0, constrained=False)
            for bot in dict.fromkeys((RANDOM, *config.builtins)):
                players = [hero, player_of(config, bot, temperature)]
                played, _ = play_match(config, players, generator, seed=seed, games=even)
                scores[bot] = match_statistics(played, config.players).score.mean
            _, answers = play_match(config, [free, TextPlayer(bot=RANDOM)], generator, seed=seed, games=even)
        legal = sum(answer.legal for answer in answers) / len(answers)
        return {"iteration": number, "games": even, "scores": scores, "legal": legal}

    def advance(
        self, state: TextRun, games: Games[str], learned: Learned, evaluation: JsonObject | None
    ) -> tuple[TextRun, bool]:
        """See ``Method.advance``. The latest adapter counts, so none is the best."""
        evaluations = state.evaluations if evaluation is None else (*state.evaluations, evaluation)
        model, number = learned.policy.model, state.iteration + 1
        return state.replace(iteration=number, model=model, evaluations=evaluations), False

    def show(self, iteration: Iteration[JsonObject]) -> None:
        """See ``Method.show``."""
        metrics, seconds = iteration.metrics, iteration.seconds
        self.say(
            f"iteration {iteration.number}/{self.iterations}: {iteration.rows} answers in {seconds['collect']:.1f} s, "
            f"reward {metrics['reward']:+.3f}, divergence {metrics['divergence']:.4f}, illegality "
            f"{metrics['illegality']:.4f}, surprise {metrics['surprise']:.3f}, learned in {seconds['update']:.1f} s"
        )
        if iteration.evaluation:
            self._show_evaluation(iteration.evaluation)

    def _show_evaluation(self, evaluation: JsonObject) -> None:
        against = ", ".join(f"{score:.1%} against {bot}" for bot, score in evaluation["scores"].items())
        self.say(
            f"after iteration {evaluation['iteration']}: {against}, {evaluation['legal']:.1%} of free answers legal, "
            f"{evaluation['games']} games each"
        )

    def save(self, state: TextRun, policy: Checkpoint) -> None:
        """See ``Method.save``."""
        with writing(self.folder.path):
            self.folder.write(STATE, state.model_dump_json())
            self.folder.write(REPORT, json.dumps(state.report, indent=2))

    def finish(self, state: TextRun) -> TextResult:
        """See ``Method.finish``."""
        text = f"Adapter {state.model} after {state.iteration} iterations; its report is in {self.folder.path}.\n"
        return TextResult(state.report, text)

    @property
    def _compute(self) -> Compute:
        return Compute(device=self.loop.device, precision=self.loop.precision, text_servers=self.servers)

    def _spec(self, seed: int) -> JsonObject:
        """Return the fields that the specs of all jobs share."""
        config, store = self.config.model_dump(mode="json"), str(self.folder.models.absolute())
        return {"store": store, "config": config, "seed": seed, **self._compute.model_dump(mode="json")}

    def _iteration_seed(self, state: TextRun) -> int:
        return derive_seed(self.seed, "train", state.iteration + 1)


def language_method(
    config: GameConfig,
    values: Mapping[str, Any],
    seed: int | None,
    output: Path,
    *,
    resume: bool,
    servers: TextServers | None = None,
) -> Language:
    """Return the method of a new or resumed run in ``output``, with checked settings; nothing is written.

    ``values`` change the settings: see ``text_settings``. Raises ``BadSettings``, ``BadUsage``, ``NoRun``,
    ``UnusableFile``, ``MissingDevice`` or what ``check_settings`` raises.
    """
    folder = TrainingFolder(output)
    if resume:
        run = read_run(output)
        changed, loop = text_settings(run.config, run.loop.model_dump() | dict(values))
        if changed.language.base != run.config.language.base:
            raise BadUsage("language.base cannot change: adapters fit no other.", hint="Begin another run.")
        return Language(folder, changed, loop, run.seed, resumed=True, servers=servers)
    changed, loop = text_settings(config, values)
    check_settings(changed, open_text_table(changed, 0).spec)
    require(loop.device)
    return Language(folder, changed, loop, seed or 0, servers=servers)


def holds_text_run(folder: Path) -> bool:
    """Return True if a folder holds a run of a language model."""
    return (folder / STATE).is_file() and not (folder / HEAD).exists()


def read_run(folder: Path) -> TextRun:
    """Return the state of the run in a folder. Raises ``NoRun`` or ``UnusableFile``."""
    return TrainingFolder(folder).read(STATE, TextRun)
