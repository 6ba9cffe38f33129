"""Checks and what they find.

A check is a pure function of ``Facts``. Its name is the code of its findings, in scripts and as the heading in
``deploy/runbooks.md``, so a check keeps its name. To add one, write the function in a module that ``CHECKS`` names, and
its section of the runbooks.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from flyball.app.doctor.facts import Facts

Level = Literal["critical", "warning", "notice"]
LEVELS: tuple[Level, ...] = ("critical", "warning", "notice")
"""Severities, the worst first.

Critical: the run, or a part of it, has stopped or loses data. Notice: nothing has to be done now.
"""

RUNBOOKS = "deploy/runbooks.md"


@dataclass(frozen=True, slots=True)
class Symptom:
    """A check's finding: the part concerned (``where``), what is wrong, and a ``hint`` at what to do about it."""

    severity: Level
    where: str
    what: str
    hint: str


Check = Callable[[Facts], Iterator[Symptom]]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A symptom with the code of the check that found it."""

    code: str
    symptom: Symptom

    @property
    def runbook(self) -> str:
        """The section of the runbooks, as a link within the repository."""
        return f"{RUNBOOKS}#{self.code}"


def code_of(check: Check) -> str:
    """Return the code of a check's findings."""
    return check.__name__.replace("_", "-")


def diagnose(facts: Facts, checks: Iterable[Check]) -> list[Diagnosis]:
    """Return the findings of checks, the worst first."""
    findings = [Diagnosis(code_of(check), symptom) for check in checks for symptom in check(facts)]
    return sorted(findings, key=lambda finding: LEVELS.index(finding.symptom.severity))


def worst(findings: Iterable[Diagnosis]) -> Level | None:
    """Return the worst severity; None if nothing was found."""
    return min((finding.symptom.severity for finding in findings), key=LEVELS.index, default=None)
