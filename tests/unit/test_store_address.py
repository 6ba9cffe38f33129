"""Names of stores: settings of users, arguments of jobs, refusals."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.app.config import BadSettings, Deployment, RunFolder
from flyball.app.config.loading import load
from flyball.app.config.store_address import StoreAddress
from flyball.app.store import FileStore, open_store, scratch_folder
from flyball.app.store.cache import CachedStore
from flyball.app.store.objects import ObjectStore, UnusableStore

RUN = RunFolder(Path("/runs/one"))


def named(store: str | None, **changes) -> str:
    return Deployment(store=store, **changes).store_name(RUN, Path("/settings"))


@pytest.mark.parametrize(
    ("store", "expected"), [("/nfs/store", "/nfs/store"), ("store", "/settings/store"), ("file:///nfs/s", "/nfs/s")]
)
def test_a_folder_is_relative_to_the_settings_and_has_no_cache(store, expected):
    assert named(store) == expected
    assert open_store(named(store)) == FileStore(Path(expected))
    assert scratch_folder(named(store)) == Path(expected)


def test_a_url_gets_this_machine_s_cache():
    name = named("s3://bucket/run?endpoint_url=http://host:9000&anon=true", cache_gib=0.5)
    address = StoreAddress.parse(name)
    cached = {"cache": "/runs/one/cache", "cache_gib": 0.5}
    assert address.options == {"endpoint_url": "http://host:9000", "anon": True, **cached}
    store = open_store(name)
    assert isinstance(store, CachedStore)
    assert (store.cache._folder, store.cache._capacity) == (Path("/runs/one/cache"), 1 << 29)
    assert isinstance(open_store(name, cached=False), ObjectStore)
    assert scratch_folder(name) == Path("/runs/one/cache")


def test_stores_are_equal_whatever_their_caches():
    assert open_store(named("s3://bucket/run")) == open_store(named("s3://bucket/run/", cache_gib=1.0))
    assert open_store(named("s3://bucket/run")) != open_store(named("s3://bucket/other"))
    assert named(None) == "/runs/one/store"


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("ftp://host/x", "ftp:// is not supported"),
        ("memory://x", "memory:// is not supported"),
        ("s3:///prefix", "write s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket/x", "no credentials"),
        ("s3://bucket/x?key=AKIA&secret=s", "no credentials"),
        ("abfs://box/x?account_key=s", "no credentials"),
        ("s3://bucket/x?SECRET=s", "no credentials"),
        ("s3://bucket/x?endpoint_url=http://key:secret@host:9000", "no credentials"),
        ("s3://bucket/x?token=s", "no credentials"),
        ("s3://bucket/x#part", "write s3://BUCKET/PREFIX"),
    ],
)
def test_unusable_names_are_refused_by_settings_and_jobs(tmp_path, store, said):
    with pytest.raises(BadSettings, match=said) as error:
        load(tmp_path, {"deployment": {"store": store}})
    assert "deployment.store" in error.value.message
    with pytest.raises(UnusableStore, match=said):
        open_store(store)


def test_a_refused_secret_is_not_repeated(tmp_path):
    with pytest.raises(BadSettings) as error:
        load(tmp_path, {"deployment": {"store": "s3://bucket/x?secret=HUSH"}})
    assert "HUSH" not in f"{error.value} {error.value.hint}"


@pytest.mark.skipif(find_spec("gcsfs") is not None, reason="needs a package that is missing")
def test_a_missing_package_is_named():
    with pytest.raises(UnusableStore, match="gcsfs") as error:
        ObjectStore(StoreAddress.parse("gs://bucket/run")).put(b"x")
    assert "flyball[s3]" in error.value.hint


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20)


@given(
    st.from_regex(r"s3://[a-z][a-z0-9.-]{1,10}(/[A-Za-z0-9._=-]{1,8}){0,3}", fullmatch=True),
    st.dictionaries(
        st.sampled_from(["endpoint_url", "anon", "cache", "cache_gib", "requester_pays", "version_aware"]),
        st.booleans() | st.integers(0, 9) | st.floats(0, 9) | st.text("abc/:.?&=#% +ä", min_size=1, max_size=12),
    ),
)
def test_an_address_is_what_its_text_says(root, options):
    address = StoreAddress("s3", root, options)
    assert StoreAddress.parse(str(address)) == address


@given(TEXT | st.builds("{}://{}".format, st.sampled_from(["s3", "gs", "abfs", "file", "x"]), TEXT))
def test_any_text_is_an_address_or_refused(text):
    try:
        address = StoreAddress.parse(text)
    except ValueError:
        return
    assert StoreAddress.parse(str(address)).root == address.root
