"""The broker's recording clock and its alarms."""

from datetime import UTC, datetime, timedelta

from flyball.app.events.envelope import EPOCH
from flyball.daemons.clock import RecordingClock

START = datetime(2026, 1, 31, tzinfo=UTC)


class SetClock:
    def __init__(self) -> None:
        self.day, self.seconds = START, 0.0

    def now(self) -> datetime:
        return self.day

    def monotonic(self) -> float:
        return self.seconds

    def turn(self, seconds: float, jump: float = 0.0) -> None:
        self.seconds += seconds
        self.day += timedelta(seconds=seconds + jump)


def test_clock_jumps_raise_alarms_until_corrected() -> None:
    clock, alarms = SetClock(), list[str]()
    recording = RecordingClock(clock, 0, alarms.append)
    clock.turn(1)
    assert (recording.now(), alarms) == (clock.day, [])
    clock.turn(1, jump=7200)
    assert recording.now() == START + timedelta(seconds=2)
    clock.turn(1)
    assert recording.now() == START + timedelta(seconds=3)
    assert alarms == ["The machine's clock jumped 7,200 s ahead; recorded time follows if it stays there."]
    clock.turn(1, jump=-7200)
    assert recording.now() == clock.day
    assert alarms[1:] == ["Recorded time and the machine's clock agree again."]
    clock, alarms = SetClock(), list[str]()
    ahead = START + timedelta(seconds=100)
    recording = RecordingClock(clock, (ahead - EPOCH) // timedelta(microseconds=1), alarms.append)
    assert alarms == ["The machine's clock is 100 s behind recorded time, which goes on at 90% of its speed."]
    clock.turn(10)
    assert recording.now() == ahead + timedelta(seconds=9)
