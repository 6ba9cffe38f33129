"""Base models: causal language models with tokenizers, drawn at random, from the store, or the user's."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from flyball.app.config import GameConfig
from flyball.app.core import parse_json, writing
from flyball.app.language.base_files import NoBaseModel, UnfitLanguageSettings, find_base, fingerprint_of
from flyball.app.language.packages import require_packages
from flyball.app.language.text_games import open_text_table
from flyball.app.language.trie import Cursor, Tries
from flyball.app.store import BlobStore
from flyball.app.store.shard import note_of, with_note

PAD = "<pad>"
_TIED = "lm_head.weight"  # is not stored where it equals the embeddings


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """The tokens of a base model.

    Attributes:
        fingerprint: SHA-256 of the base model's weights, configuration and tokenizer.
        tokenizer: a ``tokenizers.Tokenizer``; it adds no special tokens.
    """

    fingerprint: str
    tokenizer: Any

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without special tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))


@dataclass(frozen=True, slots=True, eq=False)
class BaseModel(Vocabulary):
    """A causal language model with its tokenizer. ``model`` is a model of ``transformers``, in evaluation mode."""

    model: Any


_VOCABULARIES: dict[tuple[BlobStore, str | None, str], Vocabulary] = {}


def train_tokenizer(texts: Iterable[str], size: int) -> Any:
    """Return a byte-level BPE tokenizer of at most ``size`` tokens. It can encode every text."""
    require_packages()
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[PAD], initial_alphabet=sorted(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def draw_base(tokenizer: Any, seed: int, *, layers: int = 4, width: int = 128, heads: int = 4) -> BaseModel:
    """Return a Llama with random weights for a tokenizer. By default it has about 0.7 million parameters."""
    require_packages()
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
        initializer_range=0.05,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model: Any = LlamaForCausalLM(config)
    return BaseModel("", tokenizer, model.eval())


def put_base(store: BlobStore, base: BaseModel) -> str:
    """Store weights, configuration and tokenizer as one blob; return the fingerprint, which is its key."""
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {name: tensor.contiguous() for name, tensor in base.model.state_dict().items()}
    if base.model.config.tie_word_embeddings:
        tensors.pop(_TIED)
    config = {name: value for name, value in base.model.config.to_dict().items() if name != "transformers_version"}
    note = {"content": "base_model", "config": config, "tokenizer": json.loads(base.tokenizer.to_str())}
    return str(store.put(with_note(save(tensors), json.dumps(note, sort_keys=True))))


def get_base(store: BlobStore, fingerprint: str) -> BaseModel:
    """Return a stored base model. Raises ``MissingBlob``, ``DamagedBlob`` or ``NoBaseModel``."""
    require_packages()
    from safetensors.torch import load
    from transformers import LlamaForCausalLM

    data = store.get(fingerprint)
    config, tokenizer = _description_of(data, fingerprint)
    tensors = load(data)
    lacking = _differences(config, tensors)
    if lacking:
        raise NoBaseModel(
            f"Base model {fingerprint} lacks tensors of its configuration, or has others: {', '.join(lacking):.200}.",
            hint="It was stored by another version of this program: begin a new run.",
        )
    with torch.random.fork_rng(devices=[]):
        model: Any = LlamaForCausalLM(config)
    model.load_state_dict(tensors, strict=False)
    return BaseModel(fingerprint, tokenizer, model.eval())


def _differences(config: Any, tensors: dict[str, Tensor]) -> list[str]:
    """Return the names of tensors that differ from a configuration's; it may declare any sizes."""
    from transformers import LlamaForCausalLM

    if config.num_hidden_layers > len(tensors):
        return ["layers"]
    with torch.device("meta"):
        model: Any = LlamaForCausalLM(config)
    expected = {name: tensor.shape for name, tensor in model.state_dict().items() if name in tensors or name != _TIED}
    actual = {name: tensor.shape for name, tensor in tensors.items()}
    return sorted(name for name in expected.keys() | actual.keys() if expected.get(name) != actual.get(name))


def _description_of(data: bytes, fingerprint: str) -> tuple[Any, Any]:
    """Return a stored base model's configuration and tokenizer. Raises ``NoBaseModel``."""
    from tokenizers import Tokenizer
    from transformers import LlamaConfig

    try:
        note = parse_json(note_of(data))
        return LlamaConfig(**note["config"]), Tokenizer.from_str(json.dumps(note["tokenizer"]))
    except (KeyError, TypeError, ValueError) as error:
        raise NoBaseModel(
            f"Blob {fingerprint} is intact but is no base model.", hint="Is it an adapter, or a model of a network?"
        ) from error


def export_base(base: BaseModel, folder: Path) -> None:
    """Write a base model as a folder, unless the folder exists.

    ``load_base`` and servers read such a folder. Raises ``UnusableFile``.
    """
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import logging

    if folder.exists():
        return
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=base.tokenizer, pad_token=PAD)  # type: ignore[no-untyped-call]
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=".base-") as unfinished:
            written = Path(unfinished) / "base"
            base.model.save_pretrained(written)
            tokenizer.save_pretrained(written)
            try:
                written.rename(folder)
            except OSError:
                if not folder.exists():  # otherwise another process was faster
                    raise


def place_base(store: BlobStore, name: str | None, fingerprint: str, folder: Path) -> str:
    """Return a base model's path or hub name for other programs.

    The user's, called ``name``, stays where it is, and is not checked. A stored one, if ``name`` is None, is
    exported into ``folder``. Raises ``MissingBlob``, ``DamagedBlob`` or ``UnusableFile``.
    """
    if name is not None:
        return name
    path = (folder / fingerprint).absolute()
    export_base(get_base(store, fingerprint), path)
    return str(path)


def load_base(name: str) -> BaseModel:
    """Return the user's base model, by folder or hub name. See ``find_base``. Raises ``NoBaseModel``."""
    folder = find_base(name)
    from transformers import AutoModelForCausalLM

    with _loading(folder):
        model: Any = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    return BaseModel(fingerprint_of(folder), _tokenizer_in(folder), model.eval())


def vocabulary_of(store: BlobStore, name: str | None, fingerprint: str) -> Vocabulary:
    """Return the vocabulary of a base model without loading its weights.

    The base model is the user's, called ``name``, or a stored one if ``name`` is None.
    Raises ``NoBaseModel``, ``MissingBlob`` or ``DamagedBlob``.
    """
    require_packages()
    key = store, name, fingerprint
    if key not in _VOCABULARIES:
        if name is None:
            _, tokenizer = _description_of(store.get(fingerprint), fingerprint)
        else:
            folder = find_base(name)
            check_fingerprint(name, fingerprint_of(folder), fingerprint)
            tokenizer = _tokenizer_in(folder)
        _VOCABULARIES[key] = Vocabulary(fingerprint, tokenizer)
    return _VOCABULARIES[key]


def check_fingerprint(name: str, actual: str, expected: str) -> None:
    """Check that the user's base model is the run's original one. Raises ``NoBaseModel``."""
    if actual != expected:
        raise NoBaseModel(
            f"MODEL_MISMATCH: the base model {name!r} is {actual}, and the run was begun with {expected}.",
            hint="Set language.base back to the model of the run's beginning: adapters fit no other.",
        )


def _tokenizer_in(folder: Path) -> Any:
    from tokenizers import Tokenizer

    with _loading(folder):
        return Tokenizer.from_file(str(folder / "tokenizer.json"))


@contextmanager
def _loading(folder: Path) -> Iterator[None]:
    """Turn any error while loading the user's files into ``NoBaseModel``."""
    try:
        yield
    except Exception as error:  # the user's files may raise any kind of error
        raise NoBaseModel(
            f"The base model '{folder}' cannot be loaded: {type(error).__name__}: {error}.",
            hint="Does transformers.AutoModelForCausalLM.from_pretrained load it?",
        ) from error


def check_texts(base: BaseModel, config: GameConfig) -> None:
    """Check that a base model can play a game's first turns.

    Its context has to hold the prompts, and its tokenizer has to write every legal answer.
    Raises ``UnusableTokenizer`` or ``UnfitLanguageSettings``.
    """
    table, tries = open_text_table(config, 1), Tries(base)
    table.reset([0], [0], [0])
    context, most = getattr(base.model.config, "max_position_embeddings", None), config.language.most_tokens
    for turn in table.pending():
        cursor, length = Cursor(turn.answers, tries), 0
        while cursor.allowed:
            cursor.take(cursor.allowed[0])
            length += 1
        if not config.language.constrained and length > most:
            raise UnfitLanguageSettings(
                f"games.{config.key}.language.most_tokens: an answer takes {length}, more than {most}.",
                hint=f"Set it to {2 * length} or more.",
            )
        needed = len(base.encode(turn.prompt)) + length
        if context is not None and needed > context:
            raise UnfitLanguageSettings(
                f"The base model reads {context} tokens, and a turn of {config.key} has {needed} at the beginning.",
                hint="Choose a base model with a longer context.",
            )
