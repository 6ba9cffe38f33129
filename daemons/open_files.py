"""The limit of open files, checked before a run starts."""

from resource import RLIMIT_NOFILE, getrlimit, setrlimit

from flyball.app.core import FlyballError

NEEDED = 256
"""Open files that suffice for any process of a run on a laptop.

`up` has about six for each daemon, and the dashboard one for each page that is open.
"""


class TooFewFiles(FlyballError, code="usage"):
    """The shell allows too few open files."""


def allow_open_files() -> None:
    """Allow this process and its children enough open files. Raises ``TooFewFiles`` if the hard limit is too low."""
    soft, hard = getrlimit(RLIMIT_NOFILE)  # -1 is no limit
    if 0 <= hard < NEEDED:
        raise TooFewFiles(f"Only {hard} files may be open at once; a run needs {NEEDED}.", hint="ulimit -n 1024")
    if 0 <= soft < NEEDED:
        setrlimit(RLIMIT_NOFILE, (NEEDED, hard))
