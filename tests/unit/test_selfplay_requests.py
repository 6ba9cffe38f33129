"""SelfplayWorker: the requests that it keeps when a model is replaced."""

import pytest
from driving import KEY, NEW, OLD, OTHER_KEY, DrivenWorker, promoted, run_settings
from scenario_events import asked

from app.config import GAMES, RunSettings
from app.events import ModelRolledBack
from daemons.selfplay_worker import SelfplayWorker


@pytest.mark.parametrize(("replay_rows", "kept"), [(None, [NEW]), (0, [NEW]), (1000, [OLD, NEW])])
def test_requests_of_a_replaced_model_are_kept_where_rows_replay(replay_rows: int | None, kept: list[str]) -> None:
    """The scheduler awaits these requests. It would blame the worker for dropped ones at the end of their lease."""
    worker = DrivenWorker(SelfplayWorker, RunSettings(configs=(GAMES[KEY].replace(replay_rows=replay_rows),)))
    for model in (OLD, NEW):
        worker.feed(asked(worker.worker.place.name, model))
    assert [job.request.model for job in worker.jobs()] == kept


BACK = ModelRolledBack(from_model=NEW, to_model=OLD, step=0, reason="weaker")


def playing(key: str = KEY, *, probe: bool = False) -> DrivenWorker:
    """Return a worker with a request for the champion NEW."""
    worker = DrivenWorker(SelfplayWorker, run_settings(KEY, OTHER_KEY))
    for model in (OLD, NEW):
        worker.feed(promoted(model))
    worker.feed(asked(worker.worker.place.name, NEW).replace(probe=probe), key)
    return worker


def test_requests_of_a_rolled_back_configuration_are_dropped() -> None:
    """The scheduler replaces the dropped requests, whose rows would not count."""
    worker = playing()
    worker.feed(BACK)
    assert not worker.jobs()


@pytest.mark.parametrize(
    ("key", "probe", "back"),
    [
        (OTHER_KEY, False, BACK),
        (KEY, True, BACK),
        (KEY, False, ModelRolledBack(from_model=OLD, to_model="d" * 64, step=0, reason="late")),
    ],
    ids=["of another configuration", "a probe", "the rollback is stale"],
)
def test_other_requests_stay_after_a_rollback(key: str, probe: bool, back: ModelRolledBack) -> None:
    worker = playing(key, probe=probe)
    worker.feed(back)
    assert len(worker.jobs()) == 1
