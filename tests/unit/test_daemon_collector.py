"""The garbage collector of a daemon."""

import gc

import pytest

from flyball.daemons.process import calm_collector


@pytest.fixture(autouse=True)
def restore():
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_what_is_there_from_the_start_is_not_looked_at_again():
    calm_collector()
    assert gc.get_threshold() == (10_000, 20, 20)
    assert gc.get_freeze_count() > 10_000
