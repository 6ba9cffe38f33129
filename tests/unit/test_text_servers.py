"""Servers and the folder of adapters that processes share: races, waits, and what is not ours."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

import pytest
from fake_text_server import FakeTextServer
from language_models import random_adapter, small_base, turns

from app.config import TextServers
from app.language import served_generator
from app.language.adapter_folder import AdapterFolder
from app.language.base_model import BaseModel
from app.language.generator import Adapter, Request, Sampling
from app.language.peft_generator import PeftGenerator
from app.language.served_generator import ServedGenerator
from app.language.text_server import NoServer, ServerRefused, TextServer
from app.store import MemoryStore

STORE = MemoryStore()
FREE = Sampling(temperature=1.0, stop="\n", most_tokens=4)


@pytest.fixture(scope="module")
def base() -> BaseModel:
    return small_base(STORE)


@pytest.fixture(scope="module")
def adapter() -> Adapter:
    return random_adapter(STORE, PeftGenerator(small_base(STORE)), 0)


@pytest.fixture
def server() -> Iterator[FakeTextServer]:
    with FakeTextServer(small_base(STORE)) as running:
        yield running


def test_adapter_folder_leaves_what_it_did_not_write(adapter: Adapter, tmp_path: Path) -> None:
    """A user's folder may be named, in which other things, and exported adapters, have an @ in their names."""
    others = ["me@example.org", "exported@" + "0" * 64, "notes@home.part"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / "mail@home").write_text("not a folder")
    folder = AdapterFolder(tmp_path, "base")
    folder.take(adapter)
    folder.release(adapter.name)
    folder.remove_unused(lambda _: True)
    assert sorted(path.name for path in tmp_path.glob("*@*")) == sorted([*others, "mail@home"])
