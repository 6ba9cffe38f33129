"""Files shipped with the package: examples, service files, documents."""

from pathlib import Path

from flyball import app


def shipped(packaged: str, in_checkout: str) -> Path:
    """Return a folder of the installed package, or of a checkout."""
    package = Path(app.__file__).parent
    return package / packaged if (package / packaged).is_dir() else package.parents[1] / in_checkout
