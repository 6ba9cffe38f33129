"""All checks: the public functions of the modules of checks."""

from inspect import getmembers, isgeneratorfunction

from flyball.app.doctor import daemons, journal, machine, training
from flyball.app.doctor.diagnosis import Check


def _checks() -> list[Check]:
    """Return the checks in order of module and line. Functions that a module imports are left out."""
    checks: list[Check] = []
    for module in (machine, journal, daemons, training):
        own = [
            function
            for name, function in getmembers(module, isgeneratorfunction)
            if not name.startswith("_") and function.__module__ == module.__name__
        ]
        checks += sorted(own, key=lambda function: function.__code__.co_firstlineno)
    return checks


CHECKS = tuple(_checks())
