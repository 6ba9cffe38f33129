"""The broker's start: settings first, and interruptible at once.

The time until the settings are known does not depend on the length of the journal.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from bus_rig import StepClock, address
from structlog.testing import capture_logs

from flyball.app.backends import understood
from flyball.app.config import GAMES, EvaluationSettings, RunSettings
from flyball.app.config.loading import load
from flyball.app.events import ClockTick, RunConfigured
from flyball.app.journal import SqliteJournal, history
from flyball.app.journal.history import last_settings
from flyball.app.journal.memory import MemoryJournal
from flyball.daemons.broker import BrokerVoice, configure, serve

CLOCK = StepClock()
TICK = ClockTick(period_seconds=1.0)
KEY = "tic_tac_toe_2p"


class EndlessJournal(MemoryJournal):
    """A journal whose end cannot be read before SIGTERM comes."""

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]:
        """Iterate over records without end; SIGTERM comes with the third."""
        for number in count(1):
            if number == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            yield number, (number,)


def voice(folder: Path) -> BrokerVoice:
    return BrokerVoice(load(folder).deployment.node, "boot")


def test_latest_settings_are_found_without_reading_the_journal(tmp_path: Path) -> None:
    journal, says = SqliteJournal(tmp_path / "j.db"), voice(tmp_path)
    assert last_settings(journal) is None
    says.record(journal, CLOCK.now(), *[TICK] * 3)
    for seed in (1, 2):
        configure(journal, RunSettings(seed=seed), says, CLOCK.now())
        says.record(journal, CLOCK.now(), TICK)
    journal._db.connection.execute("UPDATE frames SET head = x'00' WHERE first < 6")  # reading these records would fail
    assert last_settings(journal) == understood(RunSettings(seed=2))
    head = journal.head
    configure(journal, RunSettings(seed=2), says, CLOCK.now())
    assert journal.head == head
    journal.close()


def test_changed_temperature_of_evaluations_is_logged(tmp_path: Path) -> None:
    journal, says = SqliteJournal(tmp_path / "j.db"), voice(tmp_path)
    warmer = GAMES[KEY].replace(evaluation=EvaluationSettings(temperature=1.0))
    with capture_logs() as logs:
        for config in (GAMES[KEY], warmer, warmer):
            configure(journal, RunSettings(configs=(config,)), says, CLOCK.now())
    journal.close()
    (line,) = logs
    assert line["event"].startswith(
        f"games.{KEY}.evaluation.temperature changes from 0.3 to 1: ratings before and after"
    )


def test_signal_during_the_start_ends_the_broker_in_order(tmp_path: Path) -> None:
    journal, before = EndlessJournal(), signal.getsignal(signal.SIGTERM)
    serve(journal, address(tmp_path), load(tmp_path), voice(tmp_path), CLOCK)
    events = list(history(journal))
    assert isinstance(events[0].data, RunConfigured)
    assert [event.data.event_name for event in events[1:]] == ["DAEMON_STARTED", "DAEMON_READY", "DAEMON_STOPPED"]
    assert signal.getsignal(signal.SIGTERM) is before
