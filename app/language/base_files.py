"""Finding and checking a user's base model by its files.

No model is loaded, and torch is not imported. Nothing is downloaded unless ``HF_HUB_OFFLINE=0`` is set.
"""

import os
from functools import cache
from hashlib import sha256
from pathlib import Path

from flyball.app.config import GameConfig, LanguageSettings
from flyball.app.core import FlyballError, parse_json
from flyball.app.language.packages import require_packages
from flyball.app.language.text_game import TextSpec

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Names of the modules of a Llama that can be adapted."""

_HASHED = ("config.json", "tokenizer.json", "tokenizer_config.json", "*.safetensors")
_CHUNK = 1 << 24
_MOST_HEADER_BYTES = 100_000_000  # the longest header that safetensors reads


class NoBaseModel(FlyballError):
    """A base model that is missing, unreadable or not the wanted one."""


class UnfitLanguageSettings(FlyballError):
    """Settings of backend ``language`` with which no job can run."""


def find_base(name: str) -> Path:
    """Return the folder of the user's base model.

    ``name`` is a folder, or a name on the Hugging Face Hub. A model of the hub has to be in the local cache, unless
    ``HF_HUB_OFFLINE=0`` is set. Raises ``NoBaseModel``.
    """
    require_packages()
    from huggingface_hub import snapshot_download

    offline = os.environ["HF_HUB_OFFLINE"] != "0"
    folder = Path(name)
    if not folder.is_dir():
        try:
            folder = Path(snapshot_download(name, local_files_only=offline))
        except Exception as error:  # the hub's client raises many kinds
            where = "in the local cache of the hub" if offline else "on the hub"
            raise NoBaseModel(
                f"There is no base model {name!r}: it is no folder, and not {where} ({type(error).__name__}).",
                hint="Name a folder with config.json, tokenizer.json and *.safetensors, or download the model first: "
                f"hf download {name}. HF_HUB_OFFLINE=0 lets Flyball download it.",
            ) from error
    for pattern in ("config.json", "tokenizer.json", "*.safetensors"):
        if not list(folder.glob(pattern)):
            raise NoBaseModel(
                f"The base model {name!r} has no {pattern}.",
                hint="It needs config.json, tokenizer.json and *.safetensors, as save_pretrained writes them.",
            )
    return folder


def fingerprint_of(folder: Path) -> str:
    """Return the SHA-256 of a base model's configuration, tokenizer and weights in a folder."""
    whole = sha256()
    for path in sorted({path for pattern in _HASHED for path in folder.glob(pattern)}):
        part = sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                part.update(chunk)
        whole.update(f"{path.name} {part.hexdigest()}\n".encode())
    return whole.hexdigest()


def check_settings(config: GameConfig, game: TextSpec) -> None:
    """Check base model, teacher and adapter settings before any job runs.

    Raises ``UnfitLanguageSettings``, ``NoBaseModel`` or ``NoLanguagePackages``.
    """
    settings = config.language
    if settings.base is None and settings.teacher not in game.bots:
        raise UnfitLanguageSettings(
            f"games.{config.key}.language.teacher: {config.game} has no bot {settings.teacher!r}.",
            hint=f"Its bots: {', '.join(game.bots)}.",
        )
    sizes = _matrices(settings)
    for target in settings.targets:
        ranks = [min(shape) for name, shape in sizes.items() if f".{name}".endswith(f".{target}")]
        if not ranks:
            modules = sorted({name.split(".")[-1] for name in sizes})
            raise UnfitLanguageSettings(
                f"games.{config.key}.language.targets: the base model has no module {target!r}.",
                hint=f"Its modules with matrices: {', '.join(modules)}.",
            )
        if settings.rank > min(ranks):
            raise UnfitLanguageSettings(
                f"games.{config.key}.language.rank: {settings.rank} is more than {target} can have, {min(ranks)}.",
                hint=f"Set it to {min(ranks)} or less; 8 or 16 is usual.",
            )


@cache
def _matrices(settings: LanguageSettings) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the base model's matrices by module name."""
    width = settings.base_width
    if settings.base is None:
        return {name: (width, 2 * width if name in PROJECTIONS[4:] else width) for name in PROJECTIONS}
    matrices: dict[str, tuple[int, ...]] = {}
    for path in find_base(settings.base).glob("*.safetensors"):
        try:
            with path.open("rb") as file:
                size_bytes = int.from_bytes(file.read(8), "little")
                header = parse_json(file.read(min(size_bytes, _MOST_HEADER_BYTES)))
            shapes = {name: tuple(header[name]["shape"]) for name in header if name.endswith(".weight")}
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise NoBaseModel(
                f"The base model {settings.base!r} cannot be loaded: {path.name} is no safetensors file.",
                hint="Download or save it again.",
            ) from error
        matrices |= {name.removesuffix(".weight"): shape for name, shape in shapes.items() if len(shape) == 2}
    return matrices
