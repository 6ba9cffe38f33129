"""A store on a real S3-compatible server. Uploads break off, servers are away, and credentials are wrong."""

import subprocess
import sys
from time import sleep

import pytest
from s3_server import Gate, new_bucket, s3_server

from flyball.app.config.store_address import StoreAddress
from flyball.app.store import open_store
from flyball.app.store.blobs import key_of
from flyball.app.store.objects import ObjectStore, StoreRefused, StoreUnavailable, UnusableStore

MIB = 1 << 20
WRITER = """
import sys
from flyball.app.store import open_store
open_store(sys.argv[1]).put(bytes(int(sys.argv[2])))
"""


def through(gate: Gate, address: StoreAddress) -> StoreAddress:
    """Return the address behind a gate."""
    return address.replace_options({"endpoint_url": gate.endpoint})


def test_a_blob_that_is_there_whole_is_not_sent_again(s3, bucket):
    gate, data = Gate(s3), b"x" * MIB
    gate.open()
    store = ObjectStore(through(gate, bucket))
    store.put(data)
    sent, gate.passed = gate.passed, 0
    store.put(data)
    assert sent > MIB
    assert gate.passed < MIB // 10


@pytest.mark.parametrize(("size", "sent"), [(8 * MIB, MIB), (101 * MIB, 60 * MIB)], ids=["one part", "parts"])
def test_a_writer_killed_in_its_upload_leaves_no_blob(s3, bucket, size, sent):
    gate = Gate(s3, jams_after=sent)
    gate.open()
    command = [sys.executable, "-c", WRITER, str(through(gate, bucket)), str(size)]
    with subprocess.Popen(command) as writer:
        while gate.passed < sent:
            assert writer.poll() is None, "it ended before its upload was under way"
            sleep(0.01)
        writer.kill()
    store, key = ObjectStore(bucket), key_of(bytes(size))
    assert not store.has(key)
    assert not list(store.keys())
    assert store.put(bytes(size)) == key
    assert store.get(key) == bytes(size)


def test_a_server_that_is_away_for_a_while_only_delays(s3, bucket):
    gate, pauses = Gate(s3), []

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            gate.open()

    store = ObjectStore(through(gate, bucket), pauses=(1.0, 2.0, 4.0), sleep=wait)
    key = store.put(b"delayed")
    assert store.get(key) == b"delayed"
    assert pauses == [1.0, 2.0]


def test_a_server_that_stays_away_is_named(s3, bucket):
    store = ObjectStore(through(Gate(s3), bucket), pauses=(0.0,))
    with pytest.raises(StoreUnavailable, match=r"s3://bucket\d+/run/one does not answer"):
        store.get("0" * 64)


def test_wrong_credentials_say_what_to_do(s3):
    with s3_server(checks_credentials=True) as endpoint:
        store = ObjectStore(StoreAddress.parse(f"s3://bucket/run?endpoint_url={endpoint}"))
        for use in (lambda: store.put(b"x"), lambda: store.get("0" * 64), lambda: list(store.keys())):
            with pytest.raises(StoreRefused, match="refuses access") as error:
                use()
            assert "AWS_ACCESS_KEY_ID" in error.value.hint


def test_missing_credentials_say_what_to_do(bucket, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = ObjectStore(bucket.replace_options({**bucket.options, "skip_instance_cache": True}))
    with pytest.raises(StoreRefused, match="redentials") as error:
        store.put(b"x")
    assert "AWS_ACCESS_KEY_ID" in error.value.hint


def test_missing_buckets_and_unknown_options_are_named(s3):
    store = ObjectStore(StoreAddress.parse(f"s3://nowhere/run?endpoint_url={s3}"))
    with pytest.raises(UnusableStore, match=r"s3://nowhere/run does not exist") as error:
        store.put(b"x")
    assert "bucket" in error.value.hint
    assert not list(store.keys())
    with pytest.raises(UnusableStore, match="endpoint_uri"):
        ObjectStore(StoreAddress.parse(f"s3://bucket/run?endpoint_uri={s3}")).put(b"x")


def test_prefixes_in_one_bucket_are_apart(s3):
    first = new_bucket(s3)
    second = StoreAddress(first.scheme, first.root.replace("/run/one", "/run/two"), first.options)
    key = open_store(str(first)).put(b"mine")
    assert not open_store(str(second)).has(key)
    assert list(open_store(str(first)).keys()) == [key]
