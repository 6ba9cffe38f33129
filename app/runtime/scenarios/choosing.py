"""Which configuration a trouble is made for."""

from collections.abc import Mapping

from app.core import FlyballError
from app.runtime.scenarios.known import Known
from app.runtime.scenarios.plan import Scenario
from app.store import BlobStore


class NotReady(FlyballError):
    """A configuration lacks what a trouble needs."""


class Pointless(FlyballError):
    """Nobody can wait so short for the end of a scenario."""


def choose(scenario: Scenario, known: Mapping[str, Known], key: str | None, store: BlobStore) -> Known:
    """Return the configuration called ``key``, or without one the first that has what the trouble needs.

    Raises:
        NotReady: it, or each of them, lacks something.
    """
    asked = known if key is None else {key: known[key]}
    lacking = {name: scenario.lacks(one, store) for name, one in asked.items()}
    found = next((one for name, one in asked.items() if lacking[name] is None), None)
    if found is None:
        said = "; ".join(f"{name} {lack}" for name, lack in lacking.items())
        raise NotReady(f"{scenario.name} can't be made now: {said}.", hint="Let the loop run on, and try again.")
    return found
