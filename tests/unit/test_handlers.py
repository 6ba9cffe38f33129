"""Reducers with one method for each event type."""

import pytest

from app.events import ClockTick, HandlerReducer, ModelPromoted, RunConfigured, Step, handles


class Counting(HandlerReducer):
    @handles(ClockTick, RunConfigured)
    def counted(self, rows, event):
        return Step({"count": rows.get("count", 0) + 1})


def test_reads_follow_from_the_handlers(record):
    assert Counting.reads == {ClockTick, RunConfigured}
    assert Counting().step({"count": 1}, record(ClockTick(period_seconds=1.0))).rows == {"count": 2}


def test_a_subclass_adds_handlers_and_replaces_them(record):
    class More(Counting):
        @handles(ClockTick)
        def ticked(self, rows, event):
            return Step({"count": 0})

        @handles(ModelPromoted)
        def promoted(self, rows, event):
            return Step()

    assert More.reads == {ClockTick, RunConfigured, ModelPromoted}
    assert More().step({"count": 1}, record(ClockTick(period_seconds=1.0))).rows == {"count": 0}


def test_two_handlers_of_a_type_are_refused():
    with pytest.raises(TypeError, match="handles ClockTick twice: first, second"):

        class Confused(HandlerReducer):
            @handles(ClockTick)
            def first(self, rows, event):
                return Step()

            @handles(ClockTick)
            def second(self, rows, event):
                return Step()
