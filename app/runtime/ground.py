"""The ground a run stands on: its folder, found to be usable before anything starts."""

import tempfile

from app.config import RunFolder
from app.core import FlyballError


class UnusableFolder(FlyballError):
    """A folder in which no run can be."""


def prepare(folder: RunFolder) -> None:
    """Make the run folder if it is not there, and see that files can be made in it and in its folders.

    Raises:
        UnusableFolder: they can't.
    """
    path = folder.path
    try:
        path.mkdir(parents=True, exist_ok=True)
        for place in (path, *(inner for inner in path.iterdir() if inner.is_dir())):
            with tempfile.TemporaryFile(dir=place):
                pass
    except OSError as error:
        raise UnusableFolder(
            f"{path.absolute()} cannot be used as a run folder: {error}.",
            hint="Name a folder that you may write to: flyball --run FOLDER.",
        ) from error
