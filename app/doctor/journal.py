"""Checks of the journal: damage, growth, events that could not be folded."""

from collections.abc import Iterator

from flyball.app.core.sizes import size_text
from flyball.app.doctor.diagnosis import Symptom
from flyball.app.doctor.facts import Facts

BEHIND_EVENTS = 100_000
"""Events beyond the limit that may stay live. Archiving begins after 25,000 new events, and takes a while."""

REPLICA_BYTES = 64 << 20
"""Bytes that a replica may lack. They are four files of PostgreSQL's log; a sound replica lacks less than one."""

FORECAST_DAYS = 14.0
HOURS = 24
COMPRESSION = 6.0
"""Size of live events / size of archived ones.

It is used where no events are archived yet. Source: tests/benchmarks/results/bus.md.
"""


def journal_damaged(facts: Facts) -> Iterator[Symptom]:
    """Find damage of the journal."""
    for problem in facts.damage:
        yield Symptom("critical", "journal", problem.what, problem.hint or "All damage: flyball journal verify")


def journal_unreadable(facts: Facts) -> Iterator[Symptom]:
    """Find a journal that may be sound, but cannot be read here."""
    if facts.unreadable:
        yield Symptom("warning", "journal", facts.unreadable.what, facts.unreadable.hint)


def journal_server(facts: Facts) -> Iterator[Symptom]:
    """Find a server of the journal's database that is away, refuses this user, or could lose events."""
    for problem in facts.concerns:
        yield Symptom("critical", "journal", problem.what, problem.hint)


def journal_replica_behind(facts: Facts) -> Iterator[Symptom]:
    """Find missing synchronous replicas of the journal's database, for which appends wait, and replicas that lag."""
    state = facts.database
    if state is None:
        return
    waits_for = f"Commits wait for {state.needed} of the replicas {state.names}"
    counted = state.connected if state.synchronous is None else state.synchronous
    if counted < state.needed:
        what = f"{waits_for}, and {counted} of them answer: nothing is recorded."
        hint = "Start the replica, and look at its log. To go on without it, as a superuser of the database: "
        hint += "ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf();"
        yield Symptom("critical", "journal", what, hint)
    elif state.connected and state.synchronous is None:
        what = f"The user {state.user} may not see how far the {state.connected} replicas of the database are."
        hint = f'If this should be watched, as a superuser of the database: GRANT pg_read_all_stats TO "{state.user}";'
        yield Symptom("notice", "journal", what, hint)
    if state.behind_bytes is not None and state.behind_bytes > REPLICA_BYTES:
        what = f"A replica of the database lacks the last {size_text(state.behind_bytes)} of the server's log."
        hint = (
            "How far each of them is, on the server: SELECT * FROM pg_stat_replication; Look at its disk and network."
        )
        yield Symptom("warning", "journal", what, hint)


def history_replaced(facts: Facts) -> Iterator[Symptom]:
    """Find files of another history of the journal."""
    if facts.set_aside:
        names = [path.name.partition(".sqlite")[0] for path in facts.set_aside]
        shown = ", ".join(dict.fromkeys(names))
        what = f"The journal was exchanged. {len(names)} files of the other history were set aside: {shown}."
        hint = (
            "Events that the copy lacks are lost. Once you know why, delete the files *.other-history in its folders."
        )
        yield Symptom("warning", "journal", what, hint)


def archive_missing(facts: Facts) -> Iterator[Symptom]:
    """Find missing files of the archive."""
    for problem in facts.missing:
        hint = "Put the file back from a backup. Newer events can be read without it."
        yield Symptom("warning", "archive", problem.what, hint)


def archive_behind(facts: Facts) -> Iterator[Symptom]:
    """Find old events that are not archived, which slow every start down."""
    growth = facts.growth
    if growth and growth.is_local and growth.live_events > growth.limit + BEHIND_EVENTS:
        what = f"{growth.live_events:,} events are live; all but {growth.limit:,} should be archived."
        yield Symptom("warning", "journal", what, "Why not: flyball journal archive, and logs/archive.stderr")


def journal_not_shipped(facts: Facts) -> Iterator[Symptom]:
    """Find a journal that is to be shipped elsewhere, and would be lost with its disk."""
    shipping = facts.shipping
    if shipping and (shipping.is_late or shipping.error):
        hint = shipping.hint or "Why: logs/shipping.jsonl and logs/shipping.stderr. At once: flyball journal ship"
        yield Symptom("warning", shipping.where, shipping.text, hint)
    if shipping and shipping.beside:
        what = "The journal is shipped to the file system that it is on, so that both would be lost together."
        yield Symptom("warning", shipping.where, what, "Name a folder on another disk in deployment.journal.ship.")


def journal_growth(facts: Facts) -> Iterator[Symptom]:
    """Find a journal that will fill its disk at its present growth."""
    growth = facts.growth
    if not growth or not growth.is_local or not growth.events_per_hour or not growth.events or not facts.disks:
        return
    archived = growth.events - growth.live_events
    each = growth.archive_bytes / archived if archived else growth.bytes / growth.events / COMPRESSION
    bytes_per_day = each * growth.events_per_hour * HOURS
    days = facts.disks[0].free_bytes / bytes_per_day
    if days < FORECAST_DAYS:
        what = f"At {size_text(bytes_per_day)} a day, the journal fills the disk in {days:.1f} days."
        hint = "Free space, or delete archived events after a while: deployment.journal.delete_days"
        yield Symptom("warning", str(facts.disks[0].path), what, hint)


def dead_letters(facts: Facts) -> Iterator[Symptom]:
    """Find events that were refused, or that a daemon could not fold."""
    if facts.unfolded:
        what = f"{facts.unfolded} events could not be read or folded by a daemon."
        yield Symptom("warning", "journal", what, "Which ones, and why: flyball journal repair")
    if facts.refused:
        what = f"The broker refused {facts.refused} events, which are kept as dead letters."
        yield Symptom("warning", "journal", what, "Which ones, and why: flyball journal dead-letters list")
