"""Random valid events: extreme numbers, few names, any order."""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from hashes import sha
from pydantic import BaseModel, JsonValue, ValidationError

from flyball.app.config import GAMES, RunSettings
from flyball.app.core import NAME_LENGTH, PLAYERS_OF, EventId, GradedScores, Rate, is_model
from flyball.app.core.ids import SHA256
from flyball.app.events import Event, MatchResult, ParityChecked, Payload, RunConfigured, Scope, originate
from flyball.app.events.envelope import EPOCH
from flyball.app.events.payload import AgentRating

CONFIGS = (GAMES["tic_tac_toe_2p"], GAMES["oh_hell_3p"])
SETTINGS = RunSettings(configs=CONFIGS)
WORKER = SETTINGS.selfplay_workers[0]
HASHES = tuple(sha(f"model-{number}") for number in range(6))
NAMES = (WORKER, "selfplay_worker", "laptop", "champion", "anchor_1", "training", "é\n\x00")
KEYS = (*(config.key for config in CONFIGS), "nosuch_2p")
STEPS_US = (0, 1, 10**6, 60 * 10**6, 3600 * 10**6, 10**11)
MOST_ITEMS = 4


class Fuzzer:
    """A generator of payloads and events, determined by its seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._ids = ["event-0"]
        self._now_us = 0
        self._simple: Mapping[Any, Callable[[], Any]] = {
            EventId: lambda: self.random.choice(self._ids),
            JsonValue: lambda: self.random.choice([None, True, 3, -1.5, "text", [], {}]),
            NoneType: lambda: None,
            bool: lambda: self.random.choice([True, False]),
            Rate: self._rate,
        }

    def events(self, payloads: Iterator[Payload]) -> Iterator[Event[Payload]]:
        """Record payloads one after the other, after the run's settings."""
        for position, data in enumerate((configured(), *payloads), 1):
            subject = self.random.choice(KEYS) if data.scope is Scope.CONFIG else None
            envelope = originate(data, event_id=f"event-{position}", time=EPOCH, subject=subject)
            self._ids.append(envelope.id)
            self._now_us += self.random.choice(STEPS_US)
            source = "cli@laptop" if isinstance(data, RunConfigured) and position > 1 else "broker@laptop"
            yield Event(envelope, position, self._now_us, source)

    def payloads(self, kinds: tuple[type[Payload], ...], each: int) -> Iterator[Payload]:
        """Draw ``each`` payloads of each kind, in any order."""
        order = [kind for kind in kinds for _ in range(each)]
        self.random.shuffle(order)
        return (self.model(kind) for kind in order)

    def model(self, kind: type[BaseModel]) -> Any:
        """Draw an instance of a model; redraw what its validators refuse."""
        while True:
            fields = {name: self.value(field.annotation, field.metadata) for name, field in kind.model_fields.items()}
            try:
                return kind(**{**fields, **self._fitting(kind, fields)})
            except ValidationError:
                continue

    def _fitting(self, kind: type[BaseModel], fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return fields that depend on each other."""
        if kind is MatchResult:
            outcomes, players = self.random.choice(sorted(PLAYERS_OF.items()))
            rotations = [0] * outcomes
            for _ in range(self.random.randrange(4)):
                rotations[self.random.randrange(outcomes)] = self.random.choice((1, 7, 500, 10**10))
            games = max(1, players * sum(rotations) + self.random.randrange(players))
            wins = self.random.randint(0, games)
            played = {"games": games, "wins": wins, "draws": 0, "losses": games - wins, "truncated": 0}
            played |= {"distinct_games": self.random.randint(1, games), "rotations": tuple(rotations), "graded": None}
            return played | (self._graded(players, sum(rotations)) if self.random.random() < 0.5 else {})
        if kind is AgentRating:
            bound = None if is_model(fields["agent"]) else self.random.choice((None, "above", "below"))
            return {"bound": bound, "elo_stderr": None if bound else self.random.uniform(0.01, 900)}
        if kind is ParityChecked:
            return {"failures": self.random.randint(0, fields["checked"])}
        return {}

    def _graded(self, players: int, rotations: int) -> dict[str, Any]:
        """Return graded scores in place of counts; nothing without a rotation."""
        if not rotations:
            return {}
        mean, variance = self.random.uniform(-3, 3), self.random.choice((0.0, 0.2, 9.0))
        total, squares = rotations * mean, rotations * (mean**2 + variance)
        if abs(total) > 1e12 or squares > 1e12:
            return {}
        graded = GradedScores(players=players, rotations=rotations, total=total, squares=squares)
        return {"rotations": (), "graded": graded}

    def value(self, annotation: Any, metadata: list[Any]) -> Any:
        """Draw a value of an annotation's type."""
        if annotation in self._simple:
            return self._simple[annotation]()
        supertype = getattr(annotation, "__supertype__", None)
        if supertype is not None:
            return self.value(supertype, metadata)
        if hasattr(annotation, "__metadata__"):
            nested = [part for item in annotation.__metadata__ for part in getattr(item, "metadata", [item])]
            return self.value(annotation.__origin__, [*metadata, *nested])
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return self.model(annotation)
        if annotation is str:
            return self._text(metadata)
        if annotation in (int, float):
            return self._number(annotation, metadata)
        return self._several(annotation, metadata)

    def _rate(self) -> Rate:
        n = self.random.choice((1, 7, 500, 10**12))
        return Rate.of(self.random.randint(0, 2 * n) / 2, n)

    def _several(self, annotation: Any, metadata: list[Any]) -> Any:
        origin, arguments = get_origin(annotation), get_args(annotation)
        least = next((item.min_length for item in metadata if isinstance(item, MinLen)), 0)
        count = self.random.randint(least, max(least, MOST_ITEMS))
        if origin is Literal:
            return self.random.choice(arguments)
        if origin in (Union, UnionType):
            return self.value(self.random.choice(arguments), metadata)
        if origin is tuple:
            return tuple(self.value(arguments[0], []) for _ in range(count))
        if origin is dict:
            return {self.value(arguments[0], []): self.value(arguments[1], []) for _ in range(count)}
        raise TypeError(f"nothing to draw for {annotation!r}")

    def _text(self, metadata: list[Any]) -> str:
        pattern = next((item.pattern for item in metadata if getattr(item, "pattern", None)), None)
        if pattern:
            names = HASHES if pattern == f"^{SHA256}$" else (*HASHES, "random", "heuristic")
            return self.random.choice(names)
        longest = next(item.max_length for item in metadata if isinstance(item, MaxLen))
        return self.random.choice((*KEYS, *NAMES, "x" * longest) if longest <= NAME_LENGTH else ("why", "x" * longest))

    def _number(self, kind: type[float], metadata: list[Any]) -> float:
        lower = max(item.ge if isinstance(item, Ge) else item.gt for item in metadata if isinstance(item, Ge | Gt))
        upper = min(item.le if isinstance(item, Le) else item.lt for item in metadata if isinstance(item, Le | Lt))
        anywhere = self.random.uniform(lower, upper)
        drawn = self.random.choice((lower, upper, lower + 1, upper - 1, 0, 0.5, 3, 50, anywhere))
        exclusive = (1 if kind is int else 1e-9) * any(isinstance(item, Gt) for item in metadata)
        bounded = min(max(drawn, lower + exclusive), upper - any(isinstance(item, Lt) for item in metadata))
        return kind(bounded)


def configured() -> RunConfigured:
    """Return the run's settings."""
    return RunConfigured(run_id="run", settings=SETTINGS.model_dump(mode="json"))
