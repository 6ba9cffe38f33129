"""All checks: the public functions of the modules of checks, in their order."""

from inspect import getmembers, isgeneratorfunction

from app.doctor import daemons, journal, machine, training
from app.doctor.diagnosis import Check


def _checks() -> list[Check]:
    """Return the checks by module and line; what a module imports is not its own."""
    found: list[Check] = []
    for module in (machine, journal, daemons, training):
        own = [
            function
            for name, function in getmembers(module, isgeneratorfunction)
            if not name.startswith("_") and function.__module__ == module.__name__
        ]
        found += sorted(own, key=lambda function: function.__code__.co_firstlineno)
    return found


CHECKS = tuple(_checks())
