"""Checks of a machine: settings, keys, disks, clock, store, GPU."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

from flyball.app.bus.keys import Key
from flyball.app.core import BROKER
from flyball.app.core.clock import SECOND_US, SMALL_JUMP_US
from flyball.app.core.sizes import size_text
from flyball.app.doctor.diagnosis import Symptom
from flyball.app.doctor.facts import Facts
from flyball.app.events import AccessRefused, ClockTick, DaemonStarted
from flyball.app.status.summary import show_age

LITTLE_BYTES, ROOM_BYTES = 512 << 20, 4 << 30
"""Free space below which a disk is critical, or gets a warning."""

NEARLY_FULL = 0.9
"""Share of the store's bound at which doctor warns."""

FEW_INODES = 1000
LATELY = timedelta(hours=1)
"""Age of events that still say something about now."""

EXPIRES_SOON = timedelta(days=7)
SMALL_JUMP_SECONDS = SMALL_JUMP_US / SECOND_US
OUTBOX_SHARE = 0.5


def settings_unusable(facts: Facts) -> Iterator[Symptom]:
    """Find settings with which no daemon starts."""
    for problem in facts.settings:
        yield Symptom("critical", facts.node, problem.what, problem.hint)


def key_unusable(facts: Facts) -> Iterator[Symptom]:
    """Find unusable files of keys."""
    for problem in facts.keys:
        yield Symptom("critical", facts.node, problem.what, problem.hint)


def key_expiring(facts: Facts) -> Iterator[Symptom]:
    """Find names whose last valid key ends soon."""
    last = dict[str, Key]()
    for key in facts.admitted:
        latest = last.get(key.name)
        if latest is None or (latest.until and (key.until is None or key.until > latest.until)):
            last[key.name] = key
    for name, key in last.items():
        if key.until and key.until - facts.now < EXPIRES_SOON:
            left = (key.until - facts.now).total_seconds()
            when = f"ends in {show_age(left)}" if left > 0 else f"ended {show_age(-left)} ago"
            yield Symptom(
                "warning", name, f"Its last key {when}.", f"Give it a new one: flyball keys rotate {name} PUBLIC_KEY"
            )


def key_refused(facts: Facts) -> Iterator[Symptom]:
    """Find keys that the broker refuses. These are this machine's key, and on the head also those of others."""
    if facts.broker and facts.broker.refused and facts.broker.problem:
        yield Symptom(
            "critical",
            facts.node,
            f"The broker refuses this machine's key. {facts.broker.problem.what}",
            facts.broker.problem.hint,
        )
    if facts.growth is None:  # not the head, which alone knows the keys that are admitted now
        return
    refused = Counter[tuple[str, str]]()
    for event in facts.recent:
        if not isinstance(event.data, AccessRefused) or _is_over(event.data, facts.admitted):
            continue
        if facts.now - event.recordedtime < LATELY:
            refused[event.data.key or f"unknown key at {event.data.address}", event.data.reason] += event.data.count
    for (who, reason), count in refused.items():
        yield Symptom(
            "warning",
            who,
            f"Refusals within an hour: {count} ({reason}).",
            "Who that is, and why: flyball tail -n 5 ACCESS_REFUSED",
        )


def _is_over(refused: AccessRefused, admitted: tuple[Key, ...]) -> bool:
    """Return whether a refusal is obsolete: its key was admitted since, or another refusal names its owner."""
    match refused.reason:
        case "unknown_key":
            return any(key.public in refused.detail for key in admitted)
        case "revoked":  # without a name: a message that an open connection sent after its key was refused by name
            return refused.key is None or any(key.name == refused.key for key in admitted)
    return False


def disk_full(facts: Facts) -> Iterator[Symptom]:
    """Find disks with little room. A full disk stops the broker, and with it the run."""
    for disk in facts.disks:
        if disk.free_bytes < ROOM_BYTES:
            yield Symptom(
                "critical" if disk.free_bytes < LITTLE_BYTES else "warning",
                str(disk.path),
                f"{size_text(disk.free_bytes)} of {size_text(disk.bytes)} are free.",
                "Free some space. What Flyball can spare: flyball store gc, flyball journal archive",
            )
        elif disk.inodes is not None and disk.inodes < FEW_INODES:
            yield Symptom("critical", str(disk.path), f"Only {disk.inodes} inodes are free.", "Delete small files.")


def outbox_filling(facts: Facts) -> Iterator[Symptom]:
    """Find outboxes that grow because the broker does not take their events."""
    for daemon, size in facts.outbox_bytes.items():
        if size > OUTBOX_SHARE * facts.outbox_limit:
            yield Symptom(
                "warning",
                daemon,
                f"{size_text(size)} of unsent events; beyond {size_text(facts.outbox_limit)} it stops.",
                "Let it reach the broker: they are sent then.",
            )


def clock_skew(facts: Facts) -> Iterator[Symptom]:
    """Find jumps of recorded time, and its difference from this machine's clock."""
    ticks = [event for event in facts.recent if isinstance(event.data, ClockTick)]
    allowed = SMALL_JUMP_SECONDS + 2 * (ticks[-1].data.period_seconds if ticks else 0.0)
    ahead = (facts.recorded - facts.now).total_seconds() if facts.recorded else 0.0
    set_clocks = "Synchronise the clocks of all machines, by NTP for example; recorded time then follows by itself."
    if ahead > SMALL_JUMP_SECONDS:
        what = f"Recorded time is {show_age(ahead)} ahead of this machine's clock, which is wrong or was set back."
        yield Symptom("warning", facts.node, what, set_clocks)
    elif ticks and facts.broker and facts.broker.problem is None and -ahead > allowed:
        what = f"This machine's clock is {show_age(-ahead)} ahead of recorded time."
        yield Symptom("warning", facts.node, what, set_clocks)
    clock = [event for event in facts.recent if _moves_time(event.data)]
    for before, after in pairwise(clock):
        gap = (after.recordedtime - before.recordedtime).total_seconds()
        expected = isinstance(before.data, ClockTick) and isinstance(after.data, ClockTick)
        if expected and gap > allowed and facts.now - after.recordedtime < LATELY:
            what = f"Recorded time jumped by {show_age(gap)}, {_ago(facts, after.recorded_us)}."
            hint = "Did the machine sleep, or was its clock set or the broker halted? "
            hint += "Boosts, pauses and stalls have counted this time."
            yield Symptom("notice", "recorded time", what, hint)


def _moves_time(data: object) -> bool:
    """Return whether an event is a clock tick or the broker's start, before which time may pass unrecorded."""
    return isinstance(data, ClockTick) or (isinstance(data, DaemonStarted) and data.daemon == BROKER)


def _ago(facts: Facts, recorded_us: int) -> str:
    return f"{show_age(max(0.0, facts.now.timestamp() - recorded_us / SECOND_US))} ago"


def store_unusable(facts: Facts) -> Iterator[Symptom]:
    """Find a store that cannot be reached, read or written."""
    if facts.store:
        yield Symptom("critical", facts.node, facts.store.what, facts.store.hint)


def store_full(facts: Facts) -> Iterator[Symptom]:
    """Find a store that is or will be larger than its bound."""
    if (use := facts.store_use) is None:
        return
    sizes = f"The store takes {size_text(use.bytes)} of at most {size_text(use.most_bytes)}"
    spare = "the run deletes what nothing needs" if use.deletes else "delete what nothing needs: flyball store gc"
    hint = f"Raise deployment.store_gib, if the disk has room; {spare}."
    if use.bytes >= use.most_bytes:
        yield Symptom("critical", facts.node, f"{sizes}: self-play waits.", hint)
    elif use.bytes > NEARLY_FULL * use.most_bytes:
        yield Symptom("warning", facts.node, f"{sizes}; then self-play waits.", hint)
    elif use.forecast_bytes is not None and use.forecast_bytes > use.most_bytes:
        what = f"{sizes}, and the run will need about {size_text(use.forecast_bytes)}."
        yield Symptom("warning", facts.node, what, "Raise deployment.store_gib, or lower rows_per_training.")


def text_server_away(facts: Facts) -> Iterator[Symptom]:
    """Find servers of text that do not answer. Without any of them, jobs wait for five minutes and then fail."""
    away = {address: problem for address, problem in facts.text_servers.items() if problem}
    for address, problem in away.items():
        yield Symptom(
            "critical" if len(away) == len(facts.text_servers) else "warning",
            address,
            problem.what,
            "Start it; the command is in the log of the daemon that waits: grep vllm logs/*.stderr",
        )


def model_damaged(facts: Facts) -> Iterator[Symptom]:
    """Find current models that are missing or have changed."""
    for key, problem in facts.models.items():
        yield Symptom("critical", key, problem.what, problem.hint)


def gpu_missing(facts: Facts) -> Iterator[Symptom]:
    """Find devices of the settings that PyTorch does not see."""
    if facts.gpu:
        yield Symptom("critical", facts.node, facts.gpu.what, facts.gpu.hint)


def gpu_unused(facts: Facts) -> Iterator[Symptom]:
    """Find a GPU that no kind of job uses."""
    if facts.has_gpu and not facts.uses_gpu:
        what = "This machine has a GPU, and all kinds of jobs run on the CPU."
        yield Symptom("notice", facts.node, what, 'Set deployment.device = "auto" in flyball.toml, and start again.')
