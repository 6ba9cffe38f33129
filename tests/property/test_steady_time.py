"""Recorded time under any clock: monotonic, never frozen, finally the clock's."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flyball.app.core.clock import HOLD_US, SECOND_US, SLOWED, SMALL_JUMP_US, SteadyTime

DAY_US = 86_400 * SECOND_US
STEPS_US = st.integers(0, 30 * SECOND_US)
OFFSETS_US = st.one_of(st.integers(-400 * DAY_US, 400 * DAY_US), st.integers(-DAY_US // 100, DAY_US // 100))
READINGS = st.lists(st.tuples(STEPS_US, OFFSETS_US), min_size=1, max_size=60)
BEGIN = 20_000 * DAY_US


def run(readings: list[tuple[int, int]], recorded_us: int = 0) -> list[tuple[int, SteadyTime]]:
    """Return the time of day and the recorded time after each reading.

    A reading is a monotonic step and an offset of the time of day.
    """
    times, monotonic = [(BEGIN, SteadyTime.begin(recorded_us, BEGIN, 0))], 0
    for step, offset in readings:
        monotonic += step
        day = BEGIN + monotonic + offset
        times.append((day, times[-1][1].advance(day, monotonic)))
    return times


@given(READINGS)
def test_recorded_time_goes_on_and_never_back(readings: list[tuple[int, int]]) -> None:
    """Recorded time makes at least nine tenths of the monotonic clock's progress."""
    times = [time for _, time in run(readings)]
    for before, after in pairwise(times):
        elapsed = after.monotonic_us - before.monotonic_us
        assert after.now_us >= before.now_us
        assert after.now_us - before.now_us >= SLOWED * elapsed - 1


@given(READINGS, OFFSETS_US)
def test_a_clock_that_stays_is_followed(readings: list[tuple[int, int]], offset: int) -> None:
    """A clock behind recorded time catches up within ten times the lead."""
    times = run(readings)
    begun = times[-1][1]
    steps = [(10 * SECOND_US, offset)] * 8
    day, last = run([*readings, *steps])[-1]
    assert day - last.now_us <= SMALL_JUMP_US
    lead = begun.now_us - (BEGIN + begun.monotonic_us + offset)
    caught_up = (1 - SLOWED) * 10 * SECOND_US * len(steps)
    assert last.now_us - day <= max(0, lead - caught_up) + len(steps)


@given(st.integers(SMALL_JUMP_US + 1, 400 * DAY_US), st.integers(1, HOLD_US - 1))
def test_a_jump_that_is_corrected_in_time_leaves_no_trace(jump: int, lasts: int) -> None:
    (_, before), (_, during), (day, after) = run([(0, 0), (lasts, jump), (SECOND_US, 0)])[1:]
    assert during.relation == "ahead"
    assert during.now_us - before.now_us == lasts
    assert (after.now_us, after.relation) == (day, "even")


@given(st.integers(SMALL_JUMP_US + 1, 400 * DAY_US))
def test_a_lasting_jump_is_taken_and_its_correction_slows(jump: int) -> None:
    """Correct a lasting jump."""
    taken = run([(SECOND_US, jump)] * 62)
    assert taken[-1][0] == taken[-1][1].now_us
    assert [time.relation for _, time in taken].count("ahead") == HOLD_US // SECOND_US
    after = run([*[(SECOND_US, jump)] * 62, (SECOND_US, 0)])[-1][1]
    assert after.now_us - taken[-1][1].now_us == SLOWED * SECOND_US


@given(st.integers(-400 * DAY_US, 400 * DAY_US), READINGS)
def test_a_start_never_goes_behind_the_journal(gap: int, readings: list[tuple[int, int]]) -> None:
    times = run(readings, recorded_us=BEGIN + gap)
    assert times[0][1].now_us == max(BEGIN, BEGIN + gap)
    assert (times[0][1].relation == "behind") == (gap > SMALL_JUMP_US)
