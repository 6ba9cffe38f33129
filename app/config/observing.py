"""Settings of the observer, which publishes facts from the files of an observed loop (ADR-039)."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from flyball.app.config.base import FrozenModel
from flyball.app.core import BotName, ConfigKey

FileFormat = Literal["csv", "tsv", "jsonl", "tensorboard"]
"""A format of files to observe: comma- or tab-separated with a header, JSON lines, or TensorBoard's event files."""

ObservedFact = Literal["selfplay", "training", "evaluation", "promotion"]
"""A kind of fact that a record of a file states."""

RuleName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,39}$")]

Text = Annotated[str, Field(min_length=1, max_length=255)]

SUFFIXES: Mapping[str, FileFormat | None] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}

NEEDED: Mapping[ObservedFact, tuple[str, ...]] = {
    "selfplay": ("model", "games"),
    "training": ("model", "step"),
    "evaluation": ("model", "step", "opponent"),
    "promotion": ("model", "step"),
}
"""Fields that each fact needs."""

OPTIONAL: Mapping[ObservedFact, tuple[str, ...]] = {
    "selfplay": ("rows", "mean_length", "truncated", "temperature", "quality", "seconds"),
    "training": ("parent", "rows", "seconds"),
    "evaluation": ("wins", "draws", "losses", "score", "games", "elo", "elo_stderr", "seconds"),
    "promotion": (),
}
"""Further fields, unknown where a file lacks them."""


class ObservedFile(FrozenModel):
    """A file that an observed loop writes, and what its records say."""

    file: Text = Field(
        description="a path, a pattern such as runs/*/results.csv, or a folder of event files; relative to flyball.toml"
    )
    format: FileFormat | None = Field(
        None, description="unset: by the file's name; tensorboard for folders and names with tfevents"
    )
    fact: ObservedFact = Field(description="what each record says")
    config: ConfigKey | None = Field(None, description="the configuration; unset: the run's only one")
    fields: dict[str, Text] = Field(
        {}, description="columns by field: of a line, or a.b in JSON; of event files tags, and step"
    )
    constants: dict[str, str | int | float] = Field(
        {},
        description="values of fields that the file lacks; a text may name columns: ckpt_{step}, or with five digits "
        "ckpt_{step:05}",
    )
    metrics: tuple[Text, ...] = Field((), description="of a training: columns with figures such as losses")
    where: dict[str, str] = Field({}, description="only records whose columns have these texts")
    names: dict[BotName, Text] = Field({}, description="what the file calls the bots of the configuration's builtins")

    @property
    def form(self) -> FileFormat | None:
        """The format, perhaps by the file's name; None if that does not tell."""
        path = PurePath(self.file)
        events: FileFormat | None = "tensorboard" if "tfevents" in path.name or not path.suffix else None
        return self.format or SUFFIXES.get(path.suffix, events)

    @model_validator(mode="after")
    def _check_format(self) -> Self:
        if self.form is None:
            raise ValueError(f"the name of {self.file} does not tell its format: set format")
        return self

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        given, allowed = {*self.fields, *self.constants}, (*NEEDED[self.fact], *OPTIONAL[self.fact])
        if both := sorted(self.fields.keys() & self.constants.keys()):
            raise ValueError(f"{both[0]} is both among fields and among constants: leave one of them out")
        if unknown := sorted(given - {*allowed}):
            raise ValueError(f"a fact {self.fact} has no field {unknown[0]!r}: it has {', '.join(allowed)}")
        if missing := [name for name in NEEDED[self.fact] if name not in given]:
            raise ValueError(f"a fact {self.fact} needs {missing[0]}: name its column in fields, or give a constant")
        if self.metrics and self.fact != "training":
            raise ValueError("metrics are those of a training: leave them out")
        if self.fact == "selfplay" and not given & {"rows", "mean_length"}:
            raise ValueError("a fact selfplay needs rows or mean_length, the decisions of a game")
        if self.fact == "evaluation":
            _check_results(given)
        return self


def _check_results(given: set[str]) -> None:
    if not ({"wins", "losses"} <= given or {"score", "games"} <= given):
        raise ValueError("a fact evaluation needs wins and losses, and perhaps draws, or score and games")
    if {"wins", "score"} <= given:
        raise ValueError("an evaluation has either wins, draws and losses or score and games: leave one of them out")
    if ("elo" in given) != ("elo_stderr" in given):
        raise ValueError("elo needs elo_stderr, and the other way round; without both, the results are rated")
