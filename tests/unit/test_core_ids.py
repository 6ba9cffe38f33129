"""Ids and seeds follow from their cause and nothing else."""

import subprocess
import sys
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.app.core import derive_id, derive_seed, split_search

parts = st.lists(st.text(max_size=5) | st.integers(), max_size=4)


def test_known_ids_and_seeds_are_the_same_in_every_process() -> None:
    """Journals hold derived ids, and replay runs in another process."""
    assert derive_id() == "cae66941d9efbd404e4d88758ea67670"
    assert derive_id("trigger", "cause", 0) == "7c9062c53acef8fdca8a6da104c45a54"
    assert derive_seed(1, "hex7_2p", "selfplay", 17) == 6290276297042521949
    code = "from flyball.app.core import derive_seed; print(derive_seed(7, 'hex7_2p', 3))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(printed) == derive_seed(7, "hex7_2p", 3)


@given(st.lists(st.text(max_size=3), max_size=4), st.lists(st.text(max_size=3), max_size=4), st.integers(), parts)
def test_ids_and_seeds_have_32_digits_or_63_bits(one: list, other: list, root: int, purpose: list) -> None:
    assert (derive_id(*one) == derive_id(*other)) == (one == other), "different causes have different ids"
    assert len(derive_id(*purpose)) == 32
    assert int(derive_id(*purpose), 16) >= 0
    assert 0 <= derive_seed(root, *purpose) < 2**63


@pytest.mark.parametrize(
    "causes",
    [
        [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc")],
        [(), ("",), ("", "")],
        [("a\x00\x00\x00\x01b",), ("a", "b")],
        [("é",), ("e\u0301",)],
    ],
)
def test_parts_are_kept_apart(causes: list[tuple[str, ...]]) -> None:
    assert all(derive_id(*one) != derive_id(*other) for one, other in combinations(causes, 2))


def test_every_root_and_purpose_has_a_seed_of_its_own() -> None:
    causes = [*product(range(10), ("hex7_2p", "go7_2p"), ("selfplay", "training", "evaluation"), range(50))]
    assert len({derive_seed(*cause) for cause in causes}) == len(causes)
    # Seeds of neighbouring steps agree in half of their 63 bits; the standard deviation of the mean is 0.09.
    agreeing = [63 - (derive_seed(1, "a", step) ^ derive_seed(1, "a", step + 1)).bit_count() for step in range(2000)]
    assert abs(sum(agreeing) / len(agreeing) - 31.5) < 0.5


@pytest.mark.parametrize(
    ("player", "model", "positions"),
    [
        ("champion+64", "champion", 64),
        ("c++.npz+2", "c++.npz", 2),
        *((name, name, None) for name in ("heuristic", "a+b", "+64", "a+", "a+²")),
    ],
)
def test_search_of_a_player_is_the_number_after_its_last_plus(player: str, model: str, positions: int | None) -> None:
    assert split_search(player) == (model, positions)
