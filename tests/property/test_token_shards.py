"""Shards of answers, which are restored or refused, and tries. Tries lead to legal answers alone."""

from random import Random
from typing import Any

import numpy as np
import pytest
from every_answer import every_answer
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from flyball.app.core import ConfigKey, ShardKey
from flyball.app.language.text_game import OneOf, parts_of
from flyball.app.language.token_shard import (
    TYPES,
    BadTokenShard,
    TokenShard,
    TokenShardMeta,
    get_token_shard,
    put_token_shard,
)
from flyball.app.language.trie import Cursor, Tries, UnusableTokenizer
from flyball.app.store import DamagedBlob, MemoryStore

META = TokenShardMeta(
    config_key=ConfigKey("connect_four_text_2p"),
    rules_version="text-1",
    model="a" * 64,
    opponents=("random",),
    seed=1,
    worker="w",
    temperature=1.0,
    base="b" * 64,
    constrained=True,
)


@st.composite
def shards(draw: st.DrawFn) -> TokenShard:
    games, seats = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    rows = draw(st.integers(1, 5))
    prompts = draw(st.lists(st.integers(1, 6), min_size=rows, max_size=rows))
    answers = draw(st.lists(st.integers(1, 4), min_size=rows, max_size=rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tokens = sum(prompts) + sum(answers)
    counts = rng.integers(0, 4, tokens)
    said = draw(st.lists(st.text(max_size=5).filter(lambda text: text.isprintable()), max_size=4))
    texts = [text.encode() for text in said]
    columns: dict[str, Any] = {
        "ids": rng.integers(0, 99, tokens),
        "offsets": np.cumsum([0, *np.add(prompts, answers)]),
        "loss_mask": rng.random(tokens) < 0.5,
        "log_prob": -rng.random(tokens),
        "allowed": rng.integers(0, 99, int(counts.sum())),
        "allowed_counts": counts,
        "group": rng.integers(0, 3, rows),
        "reward": rng.normal(size=rows),
        "seat": rng.integers(0, seats, rows),
        "game": rng.integers(0, games, rows),
        "step": np.arange(rows),
        "legal": rng.random(rows) < 0.5,
        "parsed": rng.random(rows) < 0.5,
        "prompt_length": np.array(prompts),
        "truncated": rng.random(games) < 0.5,
        "returns": rng.normal(size=(games, seats)),
        "scores": rng.normal(size=(games, seats)),
        "start": np.zeros(games),
        "said": np.frombuffer(b"".join(texts), np.uint8),
        "said_offsets": np.cumsum([0, *map(len, texts)]),
        "said_seat": rng.integers(0, seats, len(texts)),
        "said_game": rng.integers(0, games, len(texts)),
    }
    return TokenShard(**{name: array.astype(TYPES[name]) for name, array in columns.items()}, meta=META)


@given(shards())
def test_shard_comes_back_as_it_was(shard: TokenShard) -> None:
    store = MemoryStore()
    key = put_token_shard(store, shard)
    found = get_token_shard(store, key)
    assert found.meta == shard.meta
    for name in TYPES:
        assert np.array_equal(getattr(found, name), getattr(shard, name)), name
    assert put_token_shard(store, found) == key
    told = [shard.played_answers(game) for game in range(shard.games)]
    assert sum(map(len, told)) == len(shard.said_seat)


@given(shards(), st.sampled_from(sorted(TYPES)), st.data())
def test_arrays_that_do_not_agree_are_refused(shard: TokenShard, name: str, data: st.DataObject) -> None:
    arrays = {field: getattr(shard, field) for field in TYPES}
    broken = np.append(arrays[name], arrays[name][:1], axis=0) if len(arrays[name]) else arrays[name].astype(np.float64)
    with pytest.raises(BadTokenShard):
        TokenShard(**arrays | {name: broken}, meta=META)


@given(st.binary(max_size=200))
def test_any_other_blob_is_refused(data: bytes) -> None:
    store = MemoryStore()
    with pytest.raises(DamagedBlob):
        get_token_shard(store, ShardKey(store.put(data)))


class Letters:
    """A tokenizer whose tokens are letters."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


class Stripping(Letters):
    """A tokenizer that drops spaces at the ends, as some do."""

    def encode(self, text: str) -> list[int]:
        return super().encode(text.strip(" "))


class Folding(Letters):
    """A tokenizer that writes any text as one token. The token is read as the text that was written last."""

    def encode(self, text: str) -> list[int]:
        self.last = text
        return [0]

    def decode(self, ids: list[int]) -> str:
        return self.last


@pytest.mark.parametrize(
    ("codec", "options", "what"),
    [
        (Stripping(), (" 1\n", " 2\n"), "writes the answer ' 1"),
        (Folding(), (" 1\n", " 2\n"), "the same beginning"),
        (Letters(), ("1", "12"), "the same beginning"),
        (Letters(), ("12", "1"), "the same beginning"),
    ],
)
def test_trie_of_answers_that_tokens_confuse_is_refused(codec: Letters, options: tuple[str, ...], what: str) -> None:
    with pytest.raises(UnusableTokenizer, match=what) as refusal:
        Tries(codec).of(options)
    assert "language.base" in refusal.value.hint


@settings(max_examples=examples(25))
@given(st.lists(st.text("ab ", min_size=1, max_size=5), min_size=1, max_size=8, unique=True), st.integers(0, 2**32))
def test_tries_lead_to_every_legal_answer_and_no_other(words: list[str], seed: int) -> None:
    rng = Random(seed)
    answers = OneOf(tuple(f"{word}\n" for word in words))
    tries = Tries(Letters())
    reached = set()
    for _ in range(60):
        cursor = Cursor(answers, tries)
        while cursor.allowed:
            cursor.take(rng.choice(cursor.allowed))
        assert parts_of(answers, cursor.text) is not None
        reached.add(cursor.text)
    assert reached <= set(every_answer(answers))
    assert len(words) > 3 or reached == set(every_answer(answers))
