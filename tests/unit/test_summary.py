"""Summaries of events and values in one line of a terminal."""

from hypothesis import given
from hypothesis import strategies as st

from app.events import TrainingUnblocked
from app.status.status import on_one_line
from app.status.summary import one_line, summarise


def test_escape_sequences_do_not_reach_the_terminal():
    assert summarise(TrainingUnblocked(reason="a\x1b[2Jb\x9b2Jc\r\n\x00d")) == "reason a [2Jb 2Jc d"
    assert on_one_line("100%\x1b[0m\rfailed.") == "100% [0m failed"


@given(st.text())
def test_one_line_is_printable_and_stays_as_it_is(text):
    assert one_line(text).isprintable()
    assert one_line(one_line(text)) == one_line(text)
