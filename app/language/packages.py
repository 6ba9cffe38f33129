"""The packages that language models need."""

from importlib.util import find_spec

from flyball.app.core import FlyballError

PACKAGES = ("transformers", "tokenizers", "peft")


class NoLanguagePackages(FlyballError):
    """Packages of backend ``language`` that are not installed."""


def require_packages() -> None:
    """Raise ``NoLanguagePackages`` if a package for language models is missing. The packages are not imported."""
    for name in PACKAGES:
        if find_spec(name) is None:
            raise NoLanguagePackages(
                f"Backend language needs {name}, which is not installed.", hint="pip install 'flyball[language]'"
            )
