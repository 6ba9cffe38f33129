"""Our rules of Diplomacy against the package ``diplomacy``.

The package has the AGPL as its licence, so it is only an oracle of tests.
"""

import pytest
from diplomacy_oracle import compare

pytest.importorskip("diplomacy", reason="the oracle is missing: pip install 'flyball[diplomacy-oracle]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

GAMES = 2_000
BATCH = 100


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(0, GAMES, BATCH))
def test_random_games_are_judged_as_by_the_oracle(first):
    for seed in range(first, first + BATCH):
        assert not compare(seed)
