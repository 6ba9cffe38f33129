"""The one root of all errors that Flyball raises on purpose."""


class FlyballError(Exception):
    """An error a reader can act on.

    Args:
        message: what happened, in one sentence.
        hint: what the reader should do about it.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()
