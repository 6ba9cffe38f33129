"""Engines, which run jobs in child processes or in threads."""

from app.core import JsonObject, Report
from app.engine.local import InlineEngine, LocalEngine
from app.engine.loops import run_coroutine
from app.engine.port import Engine, EngineClosed, JobFailed, JobTimedOut, WorkerLost, scatter
from app.engine.programs import child_environment, python_module
from app.engine.spread import spread
