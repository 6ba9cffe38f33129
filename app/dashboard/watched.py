"""A watched or kept game as a page shows it. The page shows one position, the decision in it, and what led to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from flyball.app.api.kept_games import KeptGame
from flyball.app.api.watching import Decision, Progress, WatchedGame
from flyball.app.config import GameConfig
from flyball.app.dashboard.boards import counts, draw, side_names
from flyball.app.dashboard.boards.svg import stroke, tag
from flyball.app.dashboard.jobs import PageJob
from flyball.app.games import open_table
from flyball.app.games.positions import NOBODY, Ply, spectator_of
from flyball.app.status.summary import short

NEAR = 6
"""Plies before and after the present one that are listed."""

CURVE_WIDTH, CURVE_HEIGHT = 320.0, 90.0


class Choice(NamedTuple):
    """An action of a decision."""

    text: str
    probability: float
    chosen: bool


@dataclass(frozen=True, slots=True)
class Record:
    """A game as far as it was reported, or a kept one.

    ``begins_at_random`` says whether random moves may have begun it.
    """

    plies: tuple[Ply, ...]
    history: tuple[int, ...]
    decisions: dict[int, Decision]  # by the length of the history before them
    result: WatchedGame | KeptGame | None
    begins_at_random: bool = True


@dataclass(frozen=True, slots=True)
class GameView:
    """One ply of a game.

    Attributes:
        ply: number of the position; the first is 0.
        last: number of the latest position.
        board: the drawing.
        move: what was played last; empty at the beginning.
        opening: number of random moves that began the game.
        turn: who is to move, or how the game ended.
        counts: figures of the position, for instance discs of each side.
        seats: for each seat its name, and its player.
        chooser: whose decision is shown; empty if nobody's.
        value: the expected outcome that the chooser's network sees.
        choices: the chooser's most probable actions.
        moves: plies near the present one.
        curve: the values by ply; empty without any.
        networks: the seats whose values are in the curve, with their names.
    """

    ply: int
    last: int
    board: Markup
    move: str
    opening: int
    turn: str
    counts: str
    seats: tuple[tuple[str, str], ...]
    chooser: str
    value: float | None
    choices: tuple[Choice, ...]
    moves: tuple[tuple[int, str, str], ...]
    curve: Markup
    networks: tuple[tuple[int, str], ...]


def record_of(config: GameConfig, job: PageJob) -> Record:
    """Return what a job has reported of its game."""
    reports = [Progress.model_validate(report) for report in list(job.reports)]
    result = None if job.result is None else WatchedGame.model_validate(job.result)
    history = tuple(action for report in reports for action in report.history) if result is None else result.history
    plies = spectator_of(config).plies(history)
    return Record(tuple(plies), history, {report.decision.played: report.decision for report in reports}, result)


def kept_record(config: GameConfig, game: KeptGame) -> Record:
    """Return a kept game."""
    plies = spectator_of(config).plies(game.history)
    decisions = {decision.played: decision for decision in game.decisions}
    return Record(tuple(plies), game.history, decisions, game, begins_at_random=False)


def view_of(config: GameConfig, record: Record, names: tuple[str, ...], ply: int | None) -> GameView:
    """Return a ply of a game, the latest by default. ``names`` are the names of the players, by seat."""
    last = len(record.plies) - 1
    shown = last if ply is None else min(max(ply, 0), last)
    here, spectator, sides = record.plies[shown], spectator_of(config), side_names(config)
    history = record.history[: here.played]
    position = spectator.position(history)
    opening = _opening(config, record)

    def text(number: int) -> str:
        return f"{record.plies[number].text}{', at random' * (number in opening)}"

    decision = record.decisions.get(here.played)
    choices: tuple[Choice, ...] = ()
    if decision is not None and decision.top:
        texts = spectator.names(history, [action for action, _ in decision.top])
        choices = tuple(
            Choice(text, probability, action == decision.action)
            for text, (action, probability) in zip(texts, decision.top, strict=True)
        )
    return GameView(
        ply=shown,
        last=last,
        board=Markup(draw(position)),  # noqa: S704 - the drawings escape what they insert
        move=f"{_mover(here, sides)} {text(shown)}".strip(),
        opening=len(opening),
        turn=_turn(record, decision, sides, shown == last),
        counts=counts(position),
        seats=tuple(zip(sides, names, strict=True)),
        chooser="" if decision is None else sides[decision.seat],
        value=None if decision is None or decision.value is None else round(decision.value, 2) + 0.0,  # no -0.00
        choices=choices,
        moves=tuple(
            (number, _mover(ply, sides), text(number) or "beginning")
            for number, ply in enumerate(record.plies)
            if abs(number - shown) <= NEAR
        ),
        curve=Markup(_curve(record, shown)),  # noqa: S704 - numbers only
        networks=tuple((seat, sides[seat]) for seat in _network_seats(record)),
    )


def seat_names(config: GameConfig, record: Record, player: str, against: str, seat: int) -> tuple[str, ...]:
    """Return the player in each seat. Once the game is over, the names include the hashes of the models."""
    result = record.result
    full = (result.player, result.against) if isinstance(result, WatchedGame) else (None, None)
    names = player_name(player, full[0]), player_name(against, full[1])
    return tuple(names[other != seat] for other in range(config.players))


def player_name(asked: str, full: str | None) -> str:
    """Return the name that was asked for, with the beginning of the full name, if that is known and says more."""
    digits = short(full) if full else ""
    return f"{asked} ({digits})" if digits and not digits.startswith(asked[:6]) else asked


def _opening(config: GameConfig, record: Record) -> list[int]:
    """Return the numbers of the plies that began the game at random.

    Forced moves are nobody's decisions either, so the opening ends at the first decision.
    """
    if not record.begins_at_random:
        return []
    most = config.evaluation.openings(dealt=open_table(config, 0).spec.dealt)
    until = min(record.decisions, default=0)
    moves = [number for number, ply in enumerate(record.plies) if ply.mover != NOBODY and ply.played <= until]
    return moves[:most]


def _mover(ply: Ply, sides: tuple[str, ...]) -> str:
    return "" if ply.mover == NOBODY else sides[ply.mover]


def _turn(record: Record, decision: Decision | None, sides: tuple[str, ...], at_end: bool) -> str:  # noqa: FBT001
    """Return who is to move, or the result."""
    if at_end and record.result is not None:
        return outcome(record.result.returns, sides, truncated=record.result.truncated)
    return f"{sides[decision.seat]} to move" if decision is not None else ""


def outcome(returns: Sequence[float], sides: tuple[str, ...], *, truncated: bool) -> str:
    """Return how a game ended."""
    if truncated:
        return "Cut off at the move limit, undecided"
    best = max(returns)
    winners = [side for side, figure in zip(sides, returns, strict=True) if figure == best]
    if len(winners) == len(sides):
        return "Drawn"
    figures = "" if len(sides) == 2 else f" ({', '.join(f'{figure:+.2f}' for figure in returns)})"
    return f"{' and '.join(winners)} win{'s' * (len(winners) == 1)}{figures}"


def _network_seats(record: Record) -> list[int]:
    """Return the seats of networks."""
    return sorted({decision.seat for decision in record.decisions.values() if decision.value is not None})


def _curve(record: Record, shown: int) -> str:
    """Return a drawing of the values that the networks saw, by ply.

    The first seat's outcome is up. The text is empty without values, or in games for more than two players.
    """
    numbers = {ply.played: number for number, ply in enumerate(record.plies)}
    seats = _network_seats(record)
    if not seats or max(decision.seat for decision in record.decisions.values()) > 1:
        return ""
    step = CURVE_WIDTH / max(1, len(record.plies) - 1)
    lines = [
        stroke(0, CURVE_HEIGHT / 2, CURVE_WIDTH, CURVE_HEIGHT / 2, "axis"),
        stroke(shown * step, 0, shown * step, CURVE_HEIGHT, "present"),
    ]
    for seat in seats:
        points = [
            (numbers[decision.played] * step, CURVE_HEIGHT / 2 * (1 - (1 - 2 * seat) * decision.value))
            for decision in record.decisions.values()
            if decision.seat == seat and decision.value is not None and decision.played in numbers
        ]
        lines.append(tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_=f"value-{seat}"))
    return tag(
        "svg",
        tag("title", "Values by move"),
        *lines,
        viewBox=f"0 0 {CURVE_WIDTH:g} {CURVE_HEIGHT:g}",
        class_="value-curve",
        role="img",
        preserveAspectRatio="none",
    )
