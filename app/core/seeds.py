"""Seed derivation: one run seed, and a stream of its own for every purpose."""

from app.core.ids import derive_id

SEED_BITS = 63


def derive_seed(root: int, *purpose: str | int) -> int:
    """Derive a seed in [0, 2**63) from the run's seed and what the seed is for.

    Example: ``derive_seed(run_seed, "connect_four_2p", "selfplay", 17)``.
    """
    return int(derive_id("seed", root, *purpose), 16) % (1 << SEED_BITS)
