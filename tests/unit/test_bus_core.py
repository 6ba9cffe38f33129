"""The bus's pure parts: window, order, credit, rate, memory."""

from contextlib import nullcontext

import pytest
from bus_rig import START, checked

from flyball.app.bus.fanout import SKIPPED_POSITIONS, Fanout, Piece, RecentRecords, SubscriptionCursor
from flyball.app.bus.hub import Hub, RateLimiter
from flyball.app.bus.ports import BrokerLimits
from flyball.app.bus.sequencer import Gap, IdWindow, Run, Sequencer
from flyball.app.bus.wire import (
    ACK,
    ANSWER,
    ASK,
    BURY,
    CLOSED,
    EVENTS_FORM,
    FOREIGN,
    FRAME,
    GREET,
    HELLO,
    REJECT,
    SUBSCRIBE,
    TOKEN_FORM,
    WELCOME,
    Bury,
    Hello,
    Subscribe,
    ack,
    read_ack,
)
from flyball.app.events import NodeLost, originate
from flyball.app.events.frames import Frame, frame_of
from flyball.app.journal import Fenced
from flyball.app.journal.database import ServerUnavailable
from flyball.app.journal.memory import MemoryJournal
from flyball.app.journal.segments import MissingEvents


def frame(*numbers, base=0, producer="p", epoch=1):
    return Frame.parse(frame_of([checked(n) for n in numbers], producer=producer, epoch=epoch, base=base))


def sequencer(**options):
    made = Sequencer(0, 0, **options)
    made.introduce("p", 1, 0)
    return made


def test_the_window_forgets_the_oldest_frames_and_is_rebuilt():
    """A frame that came too long ago has unknown positions."""
    window = IdWindow(size=4)
    for first in (1, 3, 5):
        window.remember([10 * first, 10 * first + 1], first)
    assert len(window) == 4
    assert (window.position(10), window.position(31), window.position(50)) == (0, 4, 5)
    assert [window.is_new(ids) for ids in ([10, 11], [99, 50], [99, 99])] == [True, False, False]
    s = sequencer(window=IdWindow(size=1))
    for base in (0, 2, 4):
        s.admit(frame(base, base + 1, base=base), 5, "p")
    assert s.admit(frame(0, 1), 5, "p") == [Run(0, 2, 0)]
    s = sequencer()
    s.admit(frame(0, 1), 5, "p")
    records, _ = s.take()
    again = Sequencer(2, 5, [(record.first, record.frame.ids) for record in records])
    again.introduce("q", 1, 0)
    assert again.admit(frame(1, 5, producer="q"), 5, "q") == [Run(0, 2, 2)]


def test_positions_follow_each_other():
    s = sequencer()
    assert s.admit(frame(0, 1), 5, "p") == [Run(0, 2, 1)]
    assert s.admit(frame(2, base=2), 5, "p") == [Run(2, 1, 3)]
    records, marks = s.take()
    assert [(r.first, r.last) for r in records] == [(1, 2), (3, 3)]
    assert marks == {("p", 1): 3}
    assert s.take() == ([], {})
    assert s.admit(frame(0, 1), 5, "p") == [Run(0, 2, 1)], "a frame that comes again gets its first positions"
    assert s.take() == ([], {})
    assert s.admit(frame(3, 1, 4, 3, base=3), 5, "p") == [Run(3, 1, 4), Run(4, 1, 2), Run(5, 1, 5), Run(6, 1, 4)]
    assert [r.frame.ids for r in s.take()[0]] == [frame(3, 4).ids], "known events are dropped"


@pytest.mark.parametrize(("base", "epoch", "words"), [(1, 1, "Resend from 2"), (3, 1, "Resend from 2"), (0, 2, None)])
def test_a_gap_or_an_unknown_epoch_is_refused(base, epoch, words):
    s = sequencer()
    s.admit(frame(0, 1), 5, "p")
    s.take()
    with pytest.raises(Gap, match=words):
        s.admit(frame(7, 8, base=base, epoch=epoch), 5, "p")
    assert s.take() == ([], {})
    assert s.head == 2


def test_marks_follow_frames_in_turn_and_are_forgotten():
    s = sequencer()
    s.admit(frame(0), 5, "p")
    s.retire("p", 1)
    assert s.take()[1] == {("p", 1): 1}
    for _ in range(2):
        s.retire("p", 1)
        assert s.marks == {}
    s = sequencer()
    for producer, base, marks in (("p", 3, {}), ("p", 0, {("p", 1): 2}), ("stranger", 0, {})):
        s.skip(producer, 1, base, 2)
        assert s.take() == ([], marks)


def test_changed_marks_are_in_the_order_of_change():
    """A journal keeps a producer's latest epochs. So their order must not depend on the hashes of names."""
    s, producers = sequencer(), [f"producer {number}" for number in range(10)]
    for producer in producers:
        s.introduce(producer, 1, 0)
        s.skip(producer, 1, 0, 2)
    assert [producer for producer, _ in s.take()[1]] == producers


def test_time_never_goes_back():
    s = Sequencer(0, 100)
    s.introduce("p", 1, 0)
    for number, at in enumerate((50, 200, 150)):
        s.admit(frame(number, base=number), at, "p")
    assert [r.recorded_us for r in s.take()[0]] == [100, 200, 200]


def test_acknowledgements_survive_the_wire():
    runs = [Run(0, 3, 1), Run(3, 1, 0)]
    assert read_ack(ack(7, runs)[0]) == (7, runs)


def piece(position, size=100):
    return Piece([b"x" * size], position, 7)


def cursor(number, types, position, credit, held=0):
    wanted = Subscribe(id=number, types=types, after=position, credit=credit, held=held)
    return SubscriptionCursor(wanted, position)


def test_subscription_without_credit_is_due_once_it_consumed():
    subscription = cursor(1, None, 0, credit=150)
    assert subscription.deliver(piece(5), head=9)
    assert subscription.is_due(9), "some credit is left"
    assert subscription.deliver(piece(9), head=9)
    assert not subscription.is_due(20)
    subscription.consume(4)
    assert not subscription.is_due(20), "the first delivery ends at 5"
    subscription.consume(5)
    assert subscription.is_due(20)


def test_a_filtered_subscription_is_sent_cursors_now_and_then():
    subscription = cursor(3, frozenset("a"), 0, credit=1000)
    assert subscription.is_due(0)
    assert subscription.deliver(Piece([], 0, 0), head=0), "it caught up"
    assert not subscription.is_due(0)
    assert subscription.deliver(Piece([], SKIPPED_POSITIONS - 1, 0), head=SKIPPED_POSITIONS - 1) is None
    [message] = subscription.deliver(Piece([], SKIPPED_POSITIONS, 5), head=SKIPPED_POSITIONS)
    assert EVENTS_FORM.unpack(message) == (b"E", 3, 0, SKIPPED_POSITIONS, SKIPPED_POSITIONS, 5)


def test_a_rate_is_bounded_and_the_limiter_says_how_long_to_wait():
    limiter = RateLimiter(rate=10)
    assert limiter.take("p", 50, 0.0) == 0
    wait = limiter.take("p", 1, 0.0)
    assert wait == pytest.approx(3.001)
    assert limiter.take("p", 1, wait) == 0
    assert limiter.take("p", 21, 1000.0) == 0, "at most two seconds' worth is saved up"
    assert limiter.take("p", 1, 1000.0) > 0
    assert limiter.take("q", 1, 1000.0) == 0, "each producer has a bucket of its own"
    limiter.take("p", 10, 1001.0)
    limiter.drop_full(1001.5)
    assert len(limiter) == 1, "a full bucket is dropped, because a new one is as good"


def test_an_epoch_ends_with_its_last_connection():
    hub = Hub(MemoryJournal(), "broker@here", BrokerLimits())

    def answer(peer, *parts):
        hub.receive(peer, list(parts), 0.0, 0)
        hub.settle()
        [(_, (head, *_))] = hub.messages()
        return head[:1]

    for peer, epochs in ((b"one", ((1, 0), (2, 0))), (b"two", ((2, 0),))):
        hello = Hello(greeting=1, producer="p", epochs=epochs, life=1, place="here", sole=False)
        assert answer(peer, HELLO, hello.model_dump_json().encode()) == WELCOME
    hub.forget(b"one")
    assert answer(b"two", FRAME, frame(0, epoch=2).raw) == ACK
    assert answer(b"two", FRAME, frame(1, epoch=1).raw) == GREET, "nobody may continue epoch 1"


def test_frames_after_a_gap_are_ignored_until_the_next_hello():
    """The client resends from the gap. An answer to each frame on its way would make it resend as often."""
    hub, sent = Hub(MemoryJournal(), "broker@here", BrokerLimits()), []
    hello = Hello(greeting=1, producer="p", epochs=((1, 0),), life=1, place="here", sole=False)
    for parts in (
        (HELLO, hello.model_dump_json().encode()),
        *((FRAME, frame(number, base=number).raw) for number in (5, 6, 0)),
        (HELLO, hello.model_dump_json().encode()),
        (FRAME, frame(0).raw),
    ):
        hub.receive(b"one", list(parts), 0.0, 0)
        hub.settle()
        sent.append([head[:1] for _, (head, *_) in hub.messages()])
    assert sent == [[WELCOME], [GREET], [], [], [WELCOME], [ACK]]


def greeted(journal, **changes):
    """Return a broker with a connection that has sent its hello, and a function to send more and settle."""
    hub = Hub(journal, "broker@here", BrokerLimits())
    hello = Hello(greeting=1, producer="p", epochs=((1, 0),), life=1, place="here", sole=False, **changes)

    def answers(*messages):
        for parts in messages:
            hub.receive(b"one", list(parts), 0.0, 0)
        hub.settle()
        return [head[:1] for _, (head, *_) in hub.messages()]

    return answers, (HELLO, hello.model_dump_json().encode())


class SupersededJournal(MemoryJournal):
    """A journal that another broker has taken over."""

    def append(self, records=(), *, marks=None, dead_letters=()):
        raise Fenced("Another broker has it.")


BEYOND = {
    "hello": ({"known": (5, 1)}, ()),
    "subscription": ({}, (SUBSCRIBE, Subscribe(id=1, types=None, after=5, credit=9).model_dump_json().encode())),
    "dead letter": (
        {},
        (TOKEN_FORM.pack(ASK, 1), BURY, Bury(position=5, producer="p", reporter="p", error="").model_dump_json(), b""),
    ),
}


@pytest.mark.parametrize("request_", BEYOND)
def test_superseded_broker_ends_before_it_turns_clients_away(request_):
    """Its successor may have recorded what it lacks. The client would set its state and its outbox aside."""
    changes, message = BEYOND[request_]
    messages = (message,) if message else ()
    answers, hello = greeted(MemoryJournal(), **changes)
    refusal = {"hello": FOREIGN, "subscription": CLOSED, "dead letter": ANSWER}[request_]
    assert answers(hello, *messages)[-1] == refusal
    answers, hello = greeted(SupersededJournal(), **changes)
    with pytest.raises(Fenced):
        answers(hello, *messages)


def test_refused_frame_that_comes_again_is_one_dead_letter():
    """Its first refusal may be lost with the connection."""
    journal = MemoryJournal()
    lost = originate(NodeLost(daemon="training", node="a", silent_seconds=9.0), event_id="lost", time=START)
    raw = frame_of([lost], producer="p", epoch=1, base=0)
    answers, hello = greeted(journal)
    assert answers(hello, (FRAME, raw)) == [WELCOME, REJECT]
    answers, hello = greeted(journal)
    assert answers(hello, (FRAME, raw), (FRAME, frame(1, base=1).raw)) == [WELCOME, ACK, REJECT]
    assert [dead.body for dead in journal.dead_letters()] == [raw]


def records(count):
    s = sequencer()
    for i in range(count):
        s.admit(frame(2 * i, 2 * i + 1, base=2 * i), 5, "p")
    return s.take()[0]


def test_recent_holds_a_bounded_tail():
    made = records(10)
    size = len(made[0].raw)
    recent = RecentRecords(0, max_bytes=3 * size + size // 2)
    recent.extend(made)
    assert [recent.holds(position) for position in (0, 13, 14, 15, 20)] == [False, False, True, True, True]
    assert recent.read(14, None, 10**9) == Piece([r.raw for r in made[7:]], 20, made[-1].checksum)
    assert recent.read(15, None, 10**9) == Piece([r.raw for r in made[7:]], 20, made[-1].checksum)
    assert recent.read(16, None, 1) == Piece([made[8].raw], 18, made[8].checksum)
    assert recent.read(16, {"other"}, 1) == Piece([], 20, made[-1].checksum)
    assert recent.read(20, None, 1) == Piece([], 20, 0)
    recent = RecentRecords(0, max_bytes=1)
    recent.extend(records(5000))
    assert len(recent._records) < 2500
    assert (recent.holds(9998), recent.holds(9997)) == (True, False)


def lagging(*subscriptions, **limits):
    """Return a fanout whose subscribers (peer, number) all read the journal from its start."""
    journal = MemoryJournal()
    journal.append(records(10))
    fanout = Fanout(journal, BrokerLimits(**limits))
    for peer, number in subscriptions:
        fanout.add(peer, Subscribe(id=number, types=None, after=0, credit=10**6), 0)
    return fanout


def test_laggards_take_turns_and_lost_peers_lose_subscriptions():
    fanout = lagging((b"a", 1), (b"b", 1), laggards_per_round=1, delivery_bytes=1)
    rounds = [[peer for peer, _ in fanout.deliver()] for _ in range(4)]
    assert rounds == [[b"a"], [b"b"], [b"a"], [b"b"]]
    fanout.remove(b"a")
    assert (fanout.count(b"a"), fanout.count(b"b")) == (0, 1)
    fanout, served = lagging((b"gone", 1), (b"gone", 2), (b"there", 1), recent_bytes=0), []
    for peer, _ in fanout.deliver():
        served.append(peer)
        if peer == b"gone":
            fanout.remove(b"gone")  # what the broker does when it can't be reached
    assert served == [b"gone", b"there"]
    assert not fanout.has_more()


@pytest.mark.parametrize(("error", "ends_all"), [(Fenced, True), (ServerUnavailable, True), (MissingEvents, False)])
def test_only_a_lost_journal_ends_all_subscriptions(monkeypatch, error, ends_all):
    fanout = lagging((b"a", 1), (b"b", 1))

    def fail(*_, **__):
        raise error("The events cannot be read.")

    monkeypatch.setattr(fanout._journal, "read", fail)
    with pytest.raises(error) if ends_all else nullcontext():
        assert [parts[0][:1] for _, parts in fanout.deliver()] == [CLOSED, CLOSED]


def test_held_deliveries_count_when_a_subscriber_resubscribes():
    """Each interruption would otherwise grant one more credit, and deliveries would pile up."""
    subscription = cursor(1, None, 5, credit=100, held=100)
    for position, due in ((None, False), (4, False), (5, True)):
        if position:
            subscription.consume(position)
        assert subscription.is_due(head=9) == due
