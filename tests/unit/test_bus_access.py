"""Keys, the key list, answers to libzmq, and reports of refusals."""

import os
from datetime import UTC, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyed_bus import NOW, KeyRing

from flyball.app.bus.access import REPORT_S, Refusals
from flyball.app.bus.keys import (
    MAX_LIST_BYTES,
    ROLES,
    BadKey,
    Key,
    KeyList,
    UnknownKey,
    new_pair,
    read_secret,
    replace_secret,
    write_secret,
)
from flyball.app.core import FlyballError, UnusableFile
from flyball.app.events import BY_TYPE, DaemonFact, Kind
from flyball.daemons.rights import rights

PUBLIC = "ab" * 32
PUBLICS = st.binary(min_size=32, max_size=32).map(bytes.hex)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True)
TIMES = st.none() | st.datetimes(timezones=st.just(UTC))


def request(public, *, version=b"1.0", mechanism=b"CURVE", address=b"10.0.0.7"):
    return [version, b"7", b"flyball", address, b"", mechanism, bytes.fromhex(public)]


@given(st.dictionaries(PUBLICS, st.tuples(NAMES, TIMES), max_size=5), st.sampled_from(ROLES))
def test_a_written_list_reads_as_it_was(found, role):
    keys = KeyList(tuple(Key(name, role, public, until) for public, (name, until) in found.items()))
    again = KeyList.parse("\n".join(key.line() for key in keys.keys))
    assert [(key, key.until) for key in again.keys] == [(key, key.until) for key in keys.keys]


@given(
    st.text() | st.lists(st.sampled_from(["n", "head", "worker", PUBLIC, "2030-01-01", "#", "\n", "\t"])).map(" ".join)
)
def test_any_text_is_a_list_or_a_bad_key(text):
    try:
        keys = KeyList.parse(text).keys
    except BadKey as error:
        assert "Line" in error.message  # noqa: PT017 - other texts are lists
    else:
        assert len({key.public for key in keys}) == len(keys)


@given(data=st.binary(max_size=300))
def test_any_file_is_a_list_or_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("keys") / "allowed"
    path.write_bytes(data)
    path.chmod(0o600)
    try:
        KeyList.read(path)
    except BadKey as error:
        assert error.hint  # noqa: PT017 - other files are lists


@pytest.mark.parametrize(
    ("name", "role", "public", "why"),
    [("b", "worker", PUBLIC, "a has this key already"), ("a", "head", "cd" * 32, "a has the role worker already")],
)
def test_key_list_with_double_key_or_second_role_is_refused(name, role, public, why):
    keys = KeyList().authorize(Key("a", "worker", PUBLIC))
    with pytest.raises(BadKey, match=why):
        keys.authorize(Key(name, role, public))


def test_a_list_that_others_can_change_is_refused(tmp_path):
    KeyList().write(tmp_path / "allowed")
    (tmp_path / "allowed").chmod(0o666)
    with pytest.raises(BadKey, match="can be changed by others"):
        KeyList.read(tmp_path / "allowed")


@pytest.mark.parametrize(
    ("mode", "why"),
    [*((mode, "can be read by others") for mode in (0o640, 0o604, 0o660, 0o644, 0o610)), (0o600, "no secret key")],
)
def test_a_secret_that_others_can_read_is_refused(tmp_path, mode, why):
    (tmp_path / "a").write_text("no key")
    if mode != 0o600:
        replace_secret(tmp_path / "a", new_pair())
    (tmp_path / "a").chmod(mode)
    with pytest.raises(BadKey, match=why):
        read_secret(tmp_path / "a")
    with pytest.raises(UnusableFile):
        read_secret(tmp_path / "missing")


def test_a_secret_is_written_once_for_its_owner_alone(tmp_path):
    pair, path = new_pair(), tmp_path / "keys" / "a"
    before = os.umask(0)
    try:
        write_secret(path, pair)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_secret(path) == pair
    assert pair.secret not in repr(pair)
    with pytest.raises(BadKey, match="exists already"):
        write_secret(path, new_pair())
    successor = new_pair()
    replace_secret(path, successor)
    assert read_secret(path) == successor


def test_a_rotated_key_stays_valid_for_its_grace():
    keys = KeyList().authorize(Key("a", "worker", PUBLIC)).rotate("a", "cd" * 32, NOW)
    old, new = keys.of("a")
    assert (old.is_valid(NOW - timedelta(seconds=1)), old.is_valid(NOW), new.is_valid(NOW)) == (True, False, True)
    assert keys.revoke("a", PUBLIC).keys == (new,)
    with pytest.raises(UnknownKey, match="No key of 'b'"):
        keys.revoke("b")
    with pytest.raises(UnknownKey, match="has no key"):
        keys.revoke("a", "ef" * 32)


@pytest.fixture
def admitted(tmp_path):
    """Return a broker's keys, and the public key of a worker that its list names."""
    ring = KeyRing(tmp_path)
    return ring, ring.admit("node1", "worker").own.public


def test_the_broker_answers_for_listed_keys_only(admitted):
    ring, public = admitted
    assert ring.access.answer(request(public))[2] == b"400", "the list was not read again yet"
    assert ring.access.refresh()
    assert ring.access.answer(request(public)) == [b"1.0", b"7", b"200", b"OK", public.encode(), b""]
    assert ring.access.answer(request(PUBLIC))[2:5] == [b"400", b"This key is not authorized.", b""]
    for odd in (request(public, version=b"2.0"), request(public, mechanism=b"PLAIN"), request(public)[:6]):
        assert ring.access.answer(odd)[2] == b"400"
    ring.path.write_text("nonsense")
    assert ring.access.refresh()
    assert ring.access.key(public) is not None, "the last list stays in force"


def test_a_key_ends_with_its_grace(admitted):
    ring, public = admitted
    KeyList.read(ring.path).rotate("node1", PUBLIC, NOW + timedelta(seconds=5)).write(ring.path)
    assert ring.access.refresh()
    assert ring.access.answer(request(public))[2] == b"200"
    ring.now = NOW + timedelta(seconds=5)
    assert ring.access.answer(request(public))[2] == b"400"
    [report] = [one for one in ring.access.refusals.due(0) if one.key]
    assert (report.key, report.reason, report.address) == ("node1", "ended", "10.0.0.7")


@given(st.lists(st.binary(max_size=40), max_size=9))
def test_any_question_is_answered_without_admitting_anybody(tmp_path_factory, parts):
    ring = KeyRing(tmp_path_factory.mktemp("ring"))
    answer = ring.access.answer(parts)
    assert (len(answer), answer[2]) == (6, b"400")


def test_refusals_are_reported_once_a_minute_with_their_number():
    refusals, key = Refusals(), Key("a", "worker", PUBLIC)
    refusals.add(key, "rights", "here", "one")
    assert [one.count for one in refusals.due(0)] == [1]
    for number in range(1000):
        refusals.add(key, "rights", "here", str(number))
        refusals.add(None, "unknown_key", f"10.0.0.{number}", "stranger")
    [strangers] = refusals.due(1)
    assert (strangers.count, strangers.key, strangers.address) == (1000, None, "10.0.0.999")
    [late] = refusals.due(REPORT_S)
    assert (late.count, late.detail) == (1000, "999")
    assert refusals.due(REPORT_S) == []


def test_a_worker_publishes_facts_only_and_a_reader_nothing():
    roles = rights()
    assert set(roles) == set(ROLES)
    assert {BY_TYPE[one].kind for one in roles["worker"]} == {Kind.FACT}
    assert {"flyball.model.promoted", "flyball.model.rolled_back", "flyball.run.configured"}.isdisjoint(roles["worker"])
    assert {"flyball.model.cached", "flyball.training.completed", "flyball.evaluation.completed"} <= roles["worker"]
    assert "flyball.model.distributed" in roles["head"] - roles["worker"], "it decides what all play"
    assert {one for one, kind in BY_TYPE.items() if issubclass(kind, DaemonFact)} <= roles["worker"]
    assert roles["reader"] == frozenset()
    assert not any("flyball.access.refused" in types for types in roles.values())


@pytest.mark.parametrize(
    ("line", "why"),
    [(f"node1 captain {PUBLIC}", "'captain' is not a role"), (f"a worker {PUBLIC} 2030-01-01T00:00:00", "zone")],
)
def test_every_fault_of_keys_says_what_to_do(line, why):
    with pytest.raises(FlyballError, match=why) as found:
        KeyList.parse(line)
    assert isinstance(found.value, BadKey)
    assert found.value.hint


def test_refusals_after_an_early_look_still_wait_a_minute():
    refusals, key = Refusals(), Key("a", "worker", PUBLIC)
    for now, due in ((0, 1), (1, 0), (2, 0), (REPORT_S, 1), (REPORT_S + 1, 0)):
        refusals.add(key, "rights", "here", "one")
        assert len(refusals.due(now)) == due


def test_the_end_of_a_key_is_noticed_once(tmp_path):
    """Connections are checked again only then."""
    ring = KeyRing(tmp_path)
    ring.admit("node1", "worker")
    KeyList.read(ring.path).rotate("node1", PUBLIC, NOW + timedelta(seconds=5)).write(ring.path)
    looks = []
    for seconds in (0, 1, 5, 6):
        ring.now = NOW + timedelta(seconds=seconds)
        looks.append(ring.access.refresh())
    assert looks == [True, False, True, False]


def test_key_list_of_over_a_megabyte_is_refused(tmp_path):
    ring = KeyRing(tmp_path)
    ring.path.write_text("#" * MAX_LIST_BYTES)
    assert KeyList.read(ring.path).keys == ()
    ring.path.write_text("#" * (MAX_LIST_BYTES + 1))
    with pytest.raises(BadKey, match="more than"):
        KeyList.read(ring.path)
