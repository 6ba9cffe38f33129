"""Errors of a table."""

from app.core import FlyballError


class UnknownGame(FlyballError):
    """A game that cannot be loaded or played here."""


class IllegalAction(FlyballError):
    """An action that the rules do not allow."""

    def __init__(self, action: int, slot: int, legal: list[int]) -> None:
        super().__init__(
            f"Action {action} in slot {slot} is not among the legal ones {legal}.",
            hint="Choose only where the mask is true, and only in slots whose seat is to move.",
        )
