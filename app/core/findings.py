"""What a check found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a check found, and what to do about it."""

    where: str
    what: str
    hint: str
