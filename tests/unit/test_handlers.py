"""Reducers with one method for each event type."""

import pytest

from flyball.app.events import ClockTick, HandlerReducer, ModelPromoted, RunConfigured, Step, handles


class Counting(HandlerReducer):
    @handles(ClockTick, RunConfigured)
    def counted(self, rows, event):
        return Step({"count": rows.get("count", 0) + 1})


def test_a_subclass_adds_handlers_and_replaces_them(record):
    class More(Counting):
        @handles(ClockTick)
        def ticked(self, rows, event):
            return Step({"count": 0})

        @handles(ModelPromoted)
        def promoted(self, rows, event):
            return Step()

    for reducer, reads, count in ((Counting, set(), 2), (More, {ModelPromoted}, 0)):
        assert reducer.reads == {ClockTick, RunConfigured} | reads
        assert reducer().step({"count": 1}, record(ClockTick(period_seconds=1.0))).rows == {"count": count}


def test_two_handlers_of_a_type_are_refused():
    with pytest.raises(TypeError, match="handles ClockTick twice: first, second"):

        class Confused(HandlerReducer):
            @handles(ClockTick)
            def first(self, rows, event):
                return Step()

            @handles(ClockTick)
            def second(self, rows, event):
                return Step()
