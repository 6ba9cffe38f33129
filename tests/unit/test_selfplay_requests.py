"""SelfplayWorker: the requests that it keeps when a model is replaced."""

import pytest
from driving import KEY, NEW, OLD, DrivenWorker
from scenario_events import asked

from app.config import GAMES, RunSettings
from daemons.selfplay_worker import SelfplayWorker


@pytest.mark.parametrize(("replay_rows", "kept"), [(None, [NEW]), (0, [NEW]), (1000, [OLD, NEW])])
def test_requests_of_a_replaced_model_are_kept_where_rows_replay(replay_rows: int | None, kept: list[str]) -> None:
    """The scheduler awaits them, and would blame the worker at the end of their lease."""
    worker = DrivenWorker(SelfplayWorker, RunSettings(configs=(GAMES[KEY].replace(replay_rows=replay_rows),)))
    for model in (OLD, NEW):
        worker.feed(asked(worker.worker.place.name, model))
    assert [job.request.model for job in worker.jobs()] == kept
