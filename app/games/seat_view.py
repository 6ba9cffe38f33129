"""One seat's view of a game. A spectator sees more: see ``flyball.app.games.positions``."""

from dataclasses import replace

from flyball.app.games.positions import FACE_DOWN, HeartsPosition, Ply, Position


def seen_by(position: Position, seat: int) -> Position:
    """Return a position without what is hidden from a seat: the others' cards lie face down."""
    if not isinstance(position, HeartsPosition):
        return position  # nothing is hidden in the games of boards

    def own(cards: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(held if holder == seat else (FACE_DOWN,) * len(held) for holder, held in enumerate(cards))

    return replace(position, hands=own(position.hands), passed=own(position.passed), viewer=seat)


def text_for(ply: Ply, seat: int) -> str:
    """Return what a seat knows of a move."""
    return ply.text if ply.mover == seat or not ply.hidden_text else ply.hidden_text
