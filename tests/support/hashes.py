"""Made-up content hashes."""

from hashlib import sha256


def sha(name: str) -> str:
    """Return a content hash derived from a name."""
    return sha256(name.encode()).hexdigest()
