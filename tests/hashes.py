"""Content hashes of what does not exist."""

from hashlib import sha256


def sha(name: str) -> str:
    """Return the hash that stands for a model or a shard of this name."""
    return sha256(name.encode()).hexdigest()
