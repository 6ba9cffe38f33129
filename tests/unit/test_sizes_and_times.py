"""Texts that people read: sizes, times, and summaries in one line."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.app.core.sizes import size_text
from flyball.app.events import TrainingUnblocked
from flyball.app.status.obstacles import on_one_line
from flyball.app.status.summary import one_line, show_clock, show_time, summarise


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9_949, "9.9 kB"),
        (9_951, "10 kB"),
        (999_400, "999 kB"),
        (999_600, "1.0 MB"),
        (14_300_000, "14 MB"),
        (34_000_000, "34 MB"),
        (1.5e9, "1.5 GB"),
        (12e12, "12 TB"),
        (2.5e16, "25,000 TB"),
    ],
)
def test_size_is_in_the_largest_unit_it_fills(size: float, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=2))])
def test_time_says_that_it_is_utc(zone: timezone) -> None:
    moment = datetime(2026, 1, 31, 12, 0, 15, 250_000, tzinfo=UTC).astimezone(zone)
    assert show_time(moment) == "2026-01-31 12:00:15Z"
    assert show_time(moment, "milliseconds") == "2026-01-31 12:00:15.250Z"
    assert show_clock(moment) == "12:00:15Z"
    assert datetime.fromisoformat(show_time(moment)) == moment.replace(microsecond=0)


def test_escape_sequences_do_not_reach_the_terminal():
    assert summarise(TrainingUnblocked(reason="a\x1b[2Jb\x9b2Jc\r\n\x00d")) == "training again because a [2Jb 2Jc d"
    assert on_one_line("100%\x1b[0m\rfailed.") == "100% [0m failed"


@given(st.text())
def test_one_line_is_printable_and_stays_as_it_is(text):
    assert one_line(text).isprintable()
    assert one_line(one_line(text)) == one_line(text)
