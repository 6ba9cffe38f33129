"""How many examples Hypothesis draws: few while one works, more in CI."""

from hypothesis import settings

QUICK, THOROUGH = 25, 100


def examples(thorough: int) -> int:
    """Return the number of examples of the current profile, for a test that has ``thorough`` in the thorough one."""
    return max(1, thorough * settings.default.max_examples // THOROUGH)
