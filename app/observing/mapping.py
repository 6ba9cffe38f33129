"""The meaning of records in observed files, by the run's settings."""

import os
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from math import isfinite, nan
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from flyball.app.config import FrozenModel, GameConfig
from flyball.app.config.observing import OPTIONAL, ObservedFact, ObservedFile
from flyball.app.core import (
    NAME_LENGTH,
    GradedScores,
    ModelHash,
    PlayerName,
    Rate,
    hashes_in,
    is_model,
    rotation_outcomes,
)
from flyball.app.events import MatchResult
from flyball.app.events.payload import Count, PositiveCount, Rating, RatingError, Seconds, Share, Temperature
from flyball.app.observing.event_files import EventFile
from flyball.app.observing.following import FollowedFile, JsonFile, Record, TableFile

_COLUMN = re.compile(r"\{([^{}:]+)(?::0([1-9]))?\}")
"""A column in a text, perhaps with the digits of a whole number: ``{step:05}``."""

NAMES = frozenset({"model", "parent", "opponent"})
"""Fields that name players."""

RESULTS = frozenset({"wins", "losses", "score", "games"})
"""Fields of an evaluation that it needs where a rule has them."""

EVENT_FILES = "*tfevents*"
"""Names of TensorBoard's event files in a folder."""


class Unusable(ValueError):
    """A record that lacks something, or in which something is wrong."""


def hash_of(name: str) -> ModelHash:
    """Return the hash by which a model is known: the SHA-256 in its name or path, otherwise that of the name itself."""
    inside = hashes_in(name)
    return ModelHash(inside[0] if len(inside) == 1 else sha256(name.encode(errors="replace")).hexdigest())


def _hashed(name: object) -> object:
    return hash_of(name) if isinstance(name, str) else name


Model = Annotated[ModelHash, BeforeValidator(_hashed)]


class Observed(FrozenModel):
    """Base of what records say."""

    model_config = ConfigDict(strict=False)  # cells of tables are texts


class ObservedSelfplay(Observed):
    """Games were played."""

    fact: Literal["selfplay"] = "selfplay"
    model: Model
    games: PositiveCount
    rows: PositiveCount | None = None
    mean_length: float | None = Field(None, ge=0, le=1e9)
    truncated: Count | None = None
    temperature: Temperature | None = None
    quality: Share | None = None
    seconds: Seconds | None = None


class ObservedTraining(Observed):
    """A model was made."""

    fact: Literal["training"] = "training"
    model: Model
    step: Count
    parent: Model | None = None
    rows: Count | None = None
    seconds: Seconds | None = None
    metrics: dict[str, float] = Field({})


class ObservedEvaluation(Observed):
    """A model played an opponent.

    ``opponent`` is a bot's name, or a model's hash; ``called`` is its name in the file, or the bot's.
    """

    fact: Literal["evaluation"] = "evaluation"
    model: Model
    step: Count
    opponent: PlayerName
    called: str
    wins: Count | None = None
    draws: Count = 0
    losses: Count | None = None
    score: Share | None = None
    games: PositiveCount | None = None
    elo: Rating | None = None
    elo_stderr: RatingError | None = None
    seconds: Seconds | None = None

    def result(self, players: int) -> MatchResult:
        """Return the match's result. Raises ``Unusable``.

        The file does not say which games were of one opening or deal, so that all count as independent. A score without
        wins and losses counts as if no game was drawn, which is the least certain case.
        """
        if self.score is not None and self.games is not None:
            wins, draws = round(self.score * self.games), 0
            losses, points = self.games - wins, self.score * self.games
            variance = self.score * (1 - self.score)
        else:
            wins, draws, losses = self.wins or 0, self.draws, self.losses or 0
            if not (games := wins + draws + losses):
                raise Unusable("no game was won, drawn or lost")
            points = wins + draws / 2
            variance = (wins + draws / 4) / games - (points / games) ** 2
        games = wins + draws + losses
        if self.games is not None and self.games != games:
            raise Unusable(f"wins, draws and losses are {games}, and games {self.games}")
        rotations = games // players
        mean, spread = points / games, max(0.0, variance) / players
        graded = (
            GradedScores(
                players=players, rotations=rotations, total=mean * rotations, squares=rotations * (mean**2 + spread)
            )
            if rotations
            else None
        )
        return MatchResult(
            opponent=self.called,
            opponent_model=ModelHash(self.opponent) if is_model(self.opponent) else None,
            opponent_elo=None,
            games=games,
            wins=wins,
            draws=draws,
            losses=losses,
            truncated=0,
            distinct_games=games,
            score=Rate.of(points, games),
            outcome=None,
            rotations=() if graded else (0,) * rotation_outcomes(players),
            graded=graded,
        )


class ObservedPromotion(Observed):
    """The loop took a model as the current one."""

    fact: Literal["promotion"] = "promotion"
    model: Model
    step: Count


AnyObserved = ObservedSelfplay | ObservedTraining | ObservedEvaluation | ObservedPromotion

KINDS: Mapping[ObservedFact, type[AnyObserved]] = {
    "selfplay": ObservedSelfplay,
    "training": ObservedTraining,
    "evaluation": ObservedEvaluation,
    "promotion": ObservedPromotion,
}


class ObservedRule:
    """A rule of the settings: the files that it names, and what their records say.

    Attributes:
        name: the rule's.
        config: the configuration that its facts are about.
        fact: what each record says.
    """

    def __init__(self, name: str, rule: ObservedFile, config: GameConfig, folder: Path) -> None:
        self.name, self.config, self._rule, self._folder = name, config, rule, folder
        self.fact = rule.fact
        texts = [value for value in rule.constants.values() if isinstance(value, str)]
        in_texts = [column for text in texts for column, _ in _COLUMN.findall(text)]
        self._columns = frozenset({*rule.fields.values(), *rule.metrics, *rule.where, *in_texts})
        is_table = rule.form in ("csv", "tsv")  # whose records have all columns
        self._optional = frozenset() if is_table else frozenset(OPTIONAL[rule.fact]) - RESULTS
        self._bots = {called: bot for bot, called in rule.names.items()} | {bot: bot for bot in config.builtins}

    def paths(self) -> Iterator[Path]:
        """Iterate over the files that exist now, in the order of their names."""
        root = self._folder / self._rule.file
        if self._rule.form == "tensorboard" and root.is_dir():
            yield from _distinct(path for path in root.rglob(EVENT_FILES) if path.is_file())
        elif any(character in self._rule.file for character in "*?["):
            yield from _distinct(path for path in _matching(root) if path.is_file())
        elif root.is_file():
            yield root

    def shown(self, path: Path) -> str:
        """Return a file's name for people and ids: relative to the settings' folder, if it lies there."""
        shown = path.relative_to(self._folder) if path.is_relative_to(self._folder) else path
        return os.fsencode(shown).decode(errors="backslashreplace")

    def open(self, path: Path) -> FollowedFile:
        """Return the reader of a file."""
        match self._rule.form:
            case "tensorboard":
                return EventFile(path, self._columns, self._wants)
            case "jsonl":
                return JsonFile(path, self._wants)
            case form:
                return TableFile(path, "\t" if form == "tsv" else ",", self._wants)

    def _wants(self, values: Mapping[str, Any]) -> bool:
        """Return whether the rule is about a record."""
        return all(column in values and _text(values[column]) == text for column, text in self._rule.where.items())

    def observed(self, record: Record) -> AnyObserved:
        """Return what a record says. Raises ``Unusable``."""
        values, rule = record.values, self._rule
        given = self._given(values)
        if rule.metrics:
            figures = {name: figure for name in rule.metrics if (figure := _figure(values, name)) is not None}
            given["metrics"] = {name: figure for name, figure in figures.items() if isfinite(figure)}
        try:
            return KINDS[rule.fact].model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"])) or "the record"
            column = rule.fields.get(field)
            found = f" ({_text(values[column])!r} in {column})" if column is not None and column in values else ""
            raise Unusable(f"{field}{found}: {first['msg']}") from None

    def unusable_metrics(self, record: Record) -> Iterator[str]:
        """Iterate over a record's metrics that ``observed`` leaves out, because they are not finite numbers."""
        for name in self._rule.metrics:
            if not isfinite(_figure(record.values, name) or 0.0):
                yield name

    def _given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that a record has, models and opponents as text. Raises ``Unusable``."""
        given: dict[str, Any] = {
            field: values.get(column) if field in self._optional else _cell(values, column)
            for field, column in self._rule.fields.items()
        }
        for field, constant in self._rule.constants.items():
            given[field] = _filled(constant, values) if isinstance(constant, str) else constant
        given = {
            field: _text(value) if field in NAMES else value for field, value in given.items() if value is not None
        }
        if self._rule.fact == "evaluation" and (opponent := given.get("opponent")):
            bot = self._bots.get(opponent)
            given |= {"called": bot or opponent[:NAME_LENGTH], "opponent": bot or hash_of(opponent)}
        return given


def _distinct(paths: Iterator[Path]) -> list[Path]:
    """Return each file once, in the order of names, although links may lead to it, such as one to the latest run."""
    found = dict[Path, Path]()
    for path in sorted(paths, key=lambda path: (sum(part.is_symlink() for part in (path, *path.parents)), path)):
        found.setdefault(path.resolve(), path)
    return sorted(found.values())


def _matching(pattern: Path) -> Iterator[Path]:
    """Iterate over the paths that a pattern with wildcards matches."""
    parts = pattern.parts
    first = next(number for number, part in enumerate(parts) if any(character in part for character in "*?["))
    yield from Path(*parts[:first]).glob(str(Path(*parts[first:])))


def _text(value: object) -> str:
    """Return a value as tables write it: whole numbers without a fraction."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _cell(values: Mapping[str, Any], column: str) -> Any:
    """Return a column's value; None for an empty one. Raises ``Unusable`` for a missing column."""
    if column not in values:
        known = ", ".join(sorted(values)[:20])
        raise Unusable(f"there is no column {column!r}; there are: {known or 'none'}")
    value = values[column]
    return None if isinstance(value, str) and not value else value


def _filled(text: str, values: Mapping[str, Any]) -> str:
    """Return a text with columns' values in the place of their names. Raises ``Unusable``."""
    return _COLUMN.sub(lambda match: _text(_cell(values, match[1])).zfill(int(match[2] or 0)), text)


def _figure(values: Mapping[str, Any], column: str) -> float | None:
    """Return a column's number, NaN for anything else; None where there is nothing."""
    value = values.get(column)
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return nan
