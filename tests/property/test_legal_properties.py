"""Lists of legal actions equal their masks after any operation."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from shard_rows import rows_of

from flyball.app.core.legal import LegalActions, are_legal, compact, join, legal_counts
from flyball.app.store import MemoryStore, get_shard, put_shard

SEEDS = st.integers(0, 2**32 - 1)
FEW = st.tuples(st.integers(0, 6), st.integers(1, 12))
MASKS = FEW.flatmap(lambda shape: arrays(np.bool_, shape))


def masks_of(seed: int, rows: int, actions: int) -> np.ndarray:
    """Return masks with at least one legal action in each row.

    Some rows have about half of the actions, so that some are next to each other.
    """
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, actions)) < rng.choice([0.0, 0.005, 0.5], size=(rows, 1))
    mask[np.arange(rows), rng.integers(0, actions, rows)] = True
    return mask


@given(MASKS)
def test_lists_of_a_mask_return_the_mask(mask: np.ndarray) -> None:
    legal = LegalActions.of(mask)
    assert np.asarray(legal).dtype == np.bool_
    np.testing.assert_array_equal(np.asarray(legal), mask)
    np.testing.assert_array_equal(legal_counts(legal), legal_counts(mask))
    assert (len(legal), legal.shape) == (len(mask), mask.shape)


@given(MASKS, st.data())
def test_selected_rows_are_those_of_the_mask(mask: np.ndarray, data: st.DataObject) -> None:
    rows = len(mask)
    numbers = st.lists(st.integers(0, rows - 1), max_size=9) if rows else st.just([])
    chosen = data.draw(
        st.one_of(st.slices(rows), arrays(np.bool_, rows), numbers.map(lambda listed: np.array(listed, dtype=np.int64)))
    )
    np.testing.assert_array_equal(np.asarray(LegalActions.of(mask)[chosen]), mask[chosen])


@given(st.integers(1, 9), st.lists(SEEDS, min_size=1, max_size=4), st.data())
def test_joined_lists_are_those_of_the_joined_mask(actions: int, seeds: list[int], data: st.DataObject) -> None:
    parts = [masks_of(seed, data.draw(st.integers(0, 5)), actions) for seed in seeds]
    listed = data.draw(st.lists(st.booleans(), min_size=len(parts), max_size=len(parts)))
    joined = join([LegalActions.of(part) if lists else part for part, lists in zip(parts, listed, strict=True)])
    np.testing.assert_array_equal(np.asarray(joined), np.concatenate(parts))
    assert isinstance(joined, LegalActions) == any(listed)


@given(st.integers(1, 5), st.integers(1, 12), SEEDS, st.data())
def test_renamed_actions_are_the_columns_of_the_mask(rows: int, actions: int, seed: int, data: st.DataObject) -> None:
    mask, chosen = masks_of(seed, rows, actions), np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1)))), int)
    source = np.array(data.draw(st.permutations(range(actions))))
    renamed = LegalActions.of(mask).renamed(chosen, np.argsort(source))
    mask[chosen] = mask[chosen][:, source]
    np.testing.assert_array_equal(np.asarray(renamed), mask)
    np.testing.assert_array_equal(renamed.listed, LegalActions.of(mask).listed)


@given(st.integers(1, 9), st.integers(1, 12), SEEDS)
def test_an_action_is_legal_as_under_the_mask(rows: int, actions: int, seed: int) -> None:
    mask, action = masks_of(seed, rows, actions), np.random.default_rng(seed).integers(0, actions, rows)
    expected = mask[np.arange(rows), action]
    for legal in (mask, LegalActions.of(mask)):
        np.testing.assert_array_equal(are_legal(legal, action), expected)


@given(st.sampled_from([1023, 1024, 13_689, 70_000]), st.integers(1, 20), SEEDS)
def test_a_stored_shard_has_the_same_legal_actions(actions: int, rows: int, seed: int) -> None:
    store, mask = MemoryStore(), masks_of(seed, rows, actions)
    action = mask.argmax(axis=1).astype(np.int32)
    keys = {put_shard(store, rows_of(mask=legal, action=action)) for legal in (mask, compact(mask))}
    assert len(keys) == 1
    restored = get_shard(store, keys.pop())
    assert isinstance(restored.mask, LegalActions) == (actions >= 1024)
    np.testing.assert_array_equal(np.asarray(restored.mask), mask)
