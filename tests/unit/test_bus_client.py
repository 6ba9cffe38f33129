"""State machine of the bus client, without a socket or clock."""

import pytest
from bus_rig import checked

from flyball.app.bus import wire
from flyball.app.bus.access import KeyRefused
from flyball.app.bus.client import (
    CREDIT_BYTES,
    REFUSED_S,
    SEARCH_S,
    WELCOME_S,
    Changed,
    Client,
    Finished,
    Overdue,
    Postponed,
    Reconnect,
    Settled,
)
from flyball.app.bus.outgoing import FRAMES_IN_FLIGHT
from flyball.app.bus.ports import Batch, BusError, PublishRefused, Sign
from flyball.app.bus.sequencer import Run
from flyball.app.events.frames import Draft, Frame, FrameBuilder, draft_of, frame_of, seal


def publish(client, *numbers, now=0.0):
    return client.publish([draft_of(checked(n)) for n in numbers], now)


def kinds(client):
    return [parts[0][:1] for parts in client.messages()]


def reconnect(client):
    client.disconnected()
    client.connected()
    return kinds(client)


def greeting(client):
    [hello] = [wire.Hello.model_validate_json(parts[1]) for parts in client.messages() if parts[0] == wire.HELLO]
    return hello.greeting


def welcome(client):
    client.receive([wire.WELCOME_FORM.pack(wire.WELCOME, greeting(client))], 0.0)


@pytest.fixture
def client():
    client = Client("p", 7, deadline_s=30.0)
    client.connected()
    welcome(client)
    return client


def opened(client, position=0):
    """Return a subscription that the broker has opened after a position."""
    subscription = client.subscribe(None, position)
    client.receive([wire.OPENED_FORM.pack(wire.OPENED, subscription.number, position)], 0.0)
    assert client.outputs() == [Changed(subscription)]
    client.messages()
    return subscription


def events(subscription, start, end, *raws, checksum=0):
    return [wire.EVENTS_FORM.pack(wire.EVENTS, subscription.number, start, end, end, checksum), *raws]


def test_frames_wait_for_the_welcome_of_the_latest_greeting():
    client = Client("p", 7)
    publish(client, 0)
    assert client.messages() == []
    client.connected()
    old = greeting(client)
    client.disconnected()
    client.connected()
    client.receive([wire.WELCOME_FORM.pack(wire.WELCOME, old)], 0.0)
    assert kinds(client) == [wire.HELLO]
    client.receive([wire.WELCOME_FORM.pack(wire.WELCOME, old + 1)], 0.0)
    assert kinds(client) == [wire.FRAME]


def test_an_acknowledgement_in_parts_finishes_the_publish_once(client):
    token = publish(client, 0, 1, 2)
    client.messages()
    client.receive(wire.ack(7, [Run(0, 2, 5)]), 0.0)
    assert client.outputs() == []
    for _ in range(2):
        client.receive(wire.ack(7, [Run(2, 1, 9)]), 0.0)
    assert client.outputs() == [Finished(token, (5, 6, 9))]
    assert not client.has_unacknowledged
    assert client.next_deadline() is None


def test_frames_in_flight_are_bounded(client):
    for n in range(FRAMES_IN_FLIGHT + 3):
        client.publish([Draft(n, "t", "", bytes(1 << 18))], 0.0)
    assert len(client.messages()) == FRAMES_IN_FLIGHT
    client.receive(wire.ack(7, [Run(0, 1, 1), Run(1, 1, 2)]), 0.0)
    assert len(client.messages()) == 2


def test_refused_frame_fails_its_publish_and_no_later_one(client):
    first = publish(client, 0)
    client.messages()
    second = publish(client, 1)
    client.messages()
    client.receive([wire.REJECT_FORM.pack(wire.REJECT, 7, 0, 1), b"no"], 0.0)
    client.receive(wire.ack(7, [Run(1, 1, 1)]), 0.0)
    refused, recorded = client.outputs()
    assert (refused.token, type(refused.result), refused.result.message) == (first, PublishRefused, "no")
    assert recorded == Finished(second, (1,))
    third = publish(client, 2)
    client.request(wire.DISCARD, wire.Discard(number=1), b"", 0.0)
    client.receive([wire.ERROR, b"what?"], 0.0)
    [(failed, error)] = client.outputs()
    assert (failed, error.message) == (third, "what?"), "an error from the broker fails publishes only"


def test_overdue_publish_is_reported_once_and_still_sent(client):
    token = publish(client, 0, now=1.0)
    assert client.next_deadline() == 31.0
    client.tick(30.9)
    assert client.outputs() == []
    client.tick(31.0)
    client.tick(99.0)
    assert client.outputs() == [Overdue(token)]
    assert kinds(client) == [wire.FRAME]


def test_kept_frames_are_sent_first_and_settled(client):
    publish(client, 0)
    assert len(client.unstored()) == 1
    client.mark_stored()
    assert client.unstored() == []
    client.messages()
    client.receive(wire.ack(7, [Run(0, 1, 1)]), 0.0)
    assert client.outputs()[-1] == Settled(((7, 0),))
    client = Client("p", 7, outbox_frames=[frame_of([checked(0)], producer="p", epoch=3, base=5)])
    publish(client, 1)
    client.connected()
    [[_, hello]] = client.messages()
    assert wire.Hello.model_validate_json(hello).epochs == ((3, 5), (7, 0))
    client.receive([wire.WELCOME_FORM.pack(wire.WELCOME, 1)], 0.0)
    assert [Frame.parse(raw).epoch for _, raw in client.messages()] == [3, 7]


def test_a_request_to_greet_later_is_met_at_that_time(client):
    client.receive([wire.GREET_FORM.pack(wire.GREET, 500), b"another has the name"], 10.0)
    assert client.outputs() == [Postponed("another has the name")]
    publish(client, 0, now=10.0)
    assert (client.next_deadline(), kinds(client)) == (10.5, [])
    client.tick(10.5)
    assert kinds(client) == [wire.HELLO]
    client.receive([wire.GREET_FORM.pack(wire.GREET, 0), b"about frames before the hello"], 10.6)
    assert kinds(client) == []


def test_requests_are_repeated_until_they_are_answered(client):
    token = client.request(wire.DISCARD, wire.Discard(number=1), b"", 0.0)
    assert kinds(client) == [wire.ASK]
    assert reconnect(client) == [wire.HELLO, wire.ASK]
    client.receive([wire.TOKEN_FORM.pack(wire.ANSWER, token), b"No such letter.", b""], 0.0)
    [(answered, error)] = client.outputs()
    assert (answered, type(error), error.message) == (token, BusError, "No such letter.")
    assert reconnect(client) == [wire.HELLO]


def test_delivery_after_a_gap_reopens_the_subscription(client):
    subscription = opened(client)
    number = subscription.number
    client.receive(events(subscription, 0, 4), 0.0)
    client.receive(events(subscription, 5, 9), 0.0)
    [[_, again]] = client.messages()
    wanted = wire.Subscribe.model_validate_json(again)
    assert (wanted.after, wanted.held, wanted.id) == (4, wire.EVENTS_FORM.size, subscription.number)
    assert subscription.number != number
    assert client.next_batch(subscription) == Batch((), 4, 4, 0)
    assert client.next_batch(subscription) is None
    assert kinds(client) == [wire.CREDIT], "what was held until it was opened again counts as one delivery"


def test_credit_is_given_back_when_a_quarter_is_consumed(client):
    subscription, position, raws = opened(client), 0, []
    while sum(map(len, raws)) < CREDIT_BYTES // 4:
        body = [Draft(position, "t", "", bytes(1 << 17))]
        raw = seal(_frame(body), first=position + 1, recorded_us=0, source="p").raw
        client.receive(events(subscription, position, position + 1, raw), 0.0)
        raws.append(raw)
        position += 1
    for _ in raws[:-1]:
        client.next_batch(subscription)
    assert wire.CREDIT not in kinds(client)
    client.next_batch(subscription)
    assert wire.CREDIT in kinds(client)


def _frame(drafts):
    builder = FrameBuilder("p")
    builder.add(drafts)
    return Frame.parse(builder.build(1, 0))


def test_a_subscription_that_the_broker_ends_is_not_opened_again(client):
    subscription = opened(client)
    client.receive([wire.ID_FORM.pack(wire.CLOSED, subscription.number), b"damage"], 0.0)
    assert client.outputs() == [Changed(subscription)]
    assert subscription.error.message == "damage"
    assert reconnect(client) == [wire.HELLO]


SIGN = Sign(position=1, lag=0, jobs=0, requests=0)


def test_sign_of_life_follows_the_frames_of_a_new_connection():
    client = Client("p", 7)
    publish(client, 0)
    for lag in (3, 0):
        client.show_life(SIGN.replace(lag=lag))
    client.connected()
    welcome(client)
    (frame, _), (kind, sign) = client.messages()
    assert (frame, kind, Sign.model_validate_json(sign)) == (wire.FRAME, wire.SIGN, SIGN)
    assert kinds(client) == []
    client.show_life(SIGN)
    assert kinds(client) == [wire.SIGN], "it is sent at once to a broker that is there"


def test_overdue_question_is_not_asked_again(client):
    token = client.request(wire.PRESENT, wire.Message(), b"", 0.0)
    client.tick(30.0)
    assert client.outputs() == [Overdue(token)]
    assert reconnect(client) == [wire.HELLO]


@pytest.mark.parametrize("patient", [False, True])
def test_refused_handshake_is_followed_by_a_new_connection(patient):
    client, error = Client("p", 7, patient=patient), KeyRefused("unknown key")
    token = publish(client, 0)
    subscription = client.subscribe(None, 0)
    client.refused(error, 5.0)
    client.disconnected()  # ZeroMQ reports the end of the refused connection, too
    failed = [Finished(token, error), Changed(subscription)]
    assert client.outputs() == ([Postponed("unknown key")] if patient else failed)
    assert client.next_deadline() == 5.0 + REFUSED_S
    client.tick(5.0 + REFUSED_S)
    assert client.outputs() == [Reconnect()]
    client.connected()
    welcome(client)
    assert wire.FRAME in kinds(client), "the frame of the refused publish is sent in any case"


def test_patient_client_with_revoked_key_keeps_subscriptions():
    client = Client("p", 7, patient=True)
    client.connected()
    welcome(client)
    subscription = opened(client, 3)
    client.receive([wire.DENIED, b"revoked"], 1.0)
    assert client.outputs() == [Postponed("revoked")]
    assert subscription.error is None
    client.tick(1.0 + REFUSED_S)
    assert kinds(client) == [wire.HELLO, wire.SUBSCRIBE]


def test_client_without_an_answer_tries_the_other_head():
    client = Client("p", 7, has_other=True)
    client.search(10.0)
    assert client.next_deadline() == 10.0 + SEARCH_S
    client.tick(10.0 + SEARCH_S)
    assert client.outputs() == [Reconnect()]
    client.search(20.0)
    client.connected()
    welcome(client)
    assert client.next_deadline() is None
    client.disconnected()
    client.search(30.0)
    client.tick(30.0 + SEARCH_S)
    assert client.outputs() == [Reconnect()]


def test_connection_without_a_welcome_is_given_up():
    """Also one that was made while the client already changed to the other address."""
    client = Client("p", 7, has_other=True)
    publish(client, 0)
    client.search(10.0, reached=True)
    client.connected()
    assert kinds(client) == [wire.HELLO]
    client.tick(10.0 + SEARCH_S)
    assert client.outputs() == []
    client.tick(10.0 + WELCOME_S)
    assert client.outputs() == [Reconnect()]
    assert not client.is_connected
    client.search(20.0)
    client.connected()
    welcome(client)
    assert kinds(client) == [wire.FRAME]


def test_client_of_one_head_leaves_connecting_to_zeromq():
    client = Client("p", 7)
    client.search(10.0)
    assert client.next_deadline() is None
