"""Types of jobs. A job is a function ``job(spec, report) -> result``; spec, reports and result are JSON."""

from collections.abc import Callable
from typing import Any

JsonObject = dict[str, Any]
Report = Callable[[JsonObject], None]
"""Receives a job's reports of its progress."""

Job = Callable[[JsonObject, Report], JsonObject]
