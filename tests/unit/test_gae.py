"""Advantages, worked by hand."""

import numpy as np
import pytest
from shard_rows import rows_of

from app.learning.samples import advantages


def test_advantages_of_two_steps_by_hand():
    row = {"game": [0, 0], "seat": [0, 0], "step": [1, 0], "reward": [1, 0], "value": [0.25, 0.5]}
    # The later step, which is the first row, has ended, and was cut off at a position worth 0.8: done beats truncated.
    flags = {"done": [True, False], "truncated": [True, False], "bootstrap": [0.8, 0.0]}
    kinds = {"game": np.int32, "seat": np.int8, "step": np.int32, "done": bool, "truncated": bool}
    rows = rows_of(**{name: np.array(column, kinds.get(name, np.float32)) for name, column in (row | flags).items()})
    last = 1 - 0.25
    first = 0 + 0.9 * 0.25 - 0.5 + 0.9 * 0.8 * last
    assert advantages(rows, 0.9, 0.8) == pytest.approx([last, first])
    assert advantages(rows, 0.9, 0.8).dtype == np.float32
