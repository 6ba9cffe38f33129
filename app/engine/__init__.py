"""Engines, which run jobs: child processes of this machine, or threads of this process."""

from app.engine.local import InlineEngine, LocalEngine, python_module
from app.engine.port import Engine, EngineClosed, JobFailed, JobTimedOut, JsonObject, Report, WorkerLost, scatter
