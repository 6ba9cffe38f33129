"""Checks of what a user-defined handler returns."""

from collections.abc import Collection, Mapping
from typing import Any

from flyball.app.core import FlyballError
from flyball.app.events import Emission, Payload, Row, Step


class UnfitStep(FlyballError):
    """A handler's result that its daemon cannot apply, save or publish."""


def check_step(kind: type[Any], done: Any, subjects: Collection[str | None]) -> None:
    """Check a step before it is applied.

    A bad row would otherwise stop the daemon later, when the row is saved or read.

    Args:
        kind: the controller's type of rows.
        done: what its handler returned.
        subjects: keys of the run's configurations, and ``None``.

    Raises:
        UnfitStep: says what is wrong with the step.
    """
    if not isinstance(done, Step):
        raise UnfitStep(f"Its handler returned {done!r}.", hint="Return a Step; Step() changes nothing.")
    _check_rows(kind, done.rows)
    _check_emissions(done.emissions, subjects)


def _check_rows(kind: type[Any], rows: Mapping[Any, Any]) -> None:
    for key, row in rows.items():
        if not isinstance(key, str) or not (row is None or type(row) is kind):  # rows are read as this type, no other
            raise UnfitStep(
                f"It returned the row {key!r}: {row!r}.",
                hint=f"Keys are texts, rows are {kind.__name__} or None, as the attribute `row` of the class says.",
            )
        if row is not None and not _can_be_saved(row):
            raise UnfitStep(
                f"Its row {row!r} would be another one after a restart.",
                hint="Its fields need types, and values of these types: numbers, texts, tuples, other rows.",
            )


def _check_emissions(emissions: Any, subjects: Collection[str | None]) -> None:
    if type(emissions) not in (tuple, list):  # a generator, for one, would be exhausted by this check
        raise UnfitStep(
            f"It returned the emissions {emissions!r}.", hint="Return a tuple: Step(rows, (Emission(payload),))."
        )
    for emission in emissions:
        if not isinstance(emission, Emission) or not isinstance(emission.data, Payload):
            raise UnfitStep(f"It returned the emission {emission!r}.", hint="Return Emission(payload).")
        if emission.subject not in subjects:
            raise UnfitStep(
                f"It emitted {emission.data.event_name} about {emission.subject!r}, which the run does not play.",
                hint="Give the key of a configuration as subject, or none for that of the cause.",
            )


def _can_be_saved(row: Row) -> bool:
    try:
        return bool(type(row).from_json(row.to_json()) == row)
    except Exception:  # noqa: BLE001 - the values are the user's, and encoders raise various errors
        return False
