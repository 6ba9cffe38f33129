"""Engines, which run jobs in child processes or in threads."""

from flyball.app.core import JsonObject, Report
from flyball.app.engine.local import InlineEngine, LocalEngine
from flyball.app.engine.loops import run_coroutine
from flyball.app.engine.port import Engine, EngineClosed, JobFailed, JobTimedOut, WorkerLost, scatter
from flyball.app.engine.programs import child_environment, python_module
from flyball.app.engine.spread import spread
