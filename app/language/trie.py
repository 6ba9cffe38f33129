"""Tries of token ids: decoding and training along legal answers only."""

from typing import Protocol, TypeAlias

from flyball.app.core import FlyballError
from flyball.app.language.text_game import Answers

Node: TypeAlias = dict[int, "Node"]
"""The next tokens, each with the node that it leads to; empty at an option's end."""

MOST_TRIES = 10_000
"""Most tries that are kept, because a game may always have new options."""


class UnusableTokenizer(FlyballError):
    """A tokenizer that cannot write or tell apart some legal answers."""


class TokenCodec(Protocol):
    """Turns text into token ids and back; see ``BaseModel``."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""

    def decode(self, ids: list[int]) -> str:
        """Return the text of token ids."""


class Trie:
    """The options of a part of an answer, by their tokens.

    Raises ``UnusableTokenizer`` if an option's tokens decode to another text, or begin another option's tokens.
    """

    def __init__(self, options: tuple[str, ...], codec: TokenCodec) -> None:
        self.root: Node = {}
        self.texts: dict[tuple[int, ...], str] = {}
        ends: list[Node] = []
        for option in options:
            ids, node = codec.encode(option), self.root
            if (text := codec.decode(ids)) != option:
                raise _unusable(f"writes the answer {option!r} as {text!r}")
            for token in ids:
                node = node.setdefault(token, {})
            ends.append(node)
            self.texts[tuple(ids)] = option
        if len(self.texts) < len(options) or any(ends):
            raise _unusable(f"gives some of the answers {', '.join(map(repr, options)):.200} the same beginning")


def _unusable(what: str) -> UnusableTokenizer:
    return UnusableTokenizer(
        f"The base model's tokenizer {what}, so not every legal answer can be drawn.",
        hint="Choose a base model with a byte-level tokenizer, or leave language.base unset.",
    )


class Tries:
    """The tries of a tokenizer, each made once."""

    def __init__(self, codec: TokenCodec) -> None:
        self._codec = codec
        self._tries: dict[tuple[str, ...], Trie] = {}

    def of(self, options: tuple[str, ...]) -> Trie:
        """Return the trie of some options. Raises ``UnusableTokenizer``."""
        if options not in self._tries:
            if len(self._tries) >= MOST_TRIES:
                self._tries.clear()
            self._tries[options] = Trie(options, self._codec)
        return self._tries[options]


class Cursor:
    """The place in an answer that is being decoded."""

    def __init__(self, answers: Answers, tries: Tries) -> None:
        self._answers, self._tries = answers, tries
        self._parts: tuple[str, ...] = ()
        self._ids: tuple[int, ...] = ()
        self._trie = self._next(())
        self._node = self._trie.root

    @property
    def allowed(self) -> tuple[int, ...]:
        """The legal next tokens; empty if the answer is complete."""
        return tuple(self._node)

    @property
    def text(self) -> str:
        """The complete parts so far."""
        return "".join(self._parts)

    def take(self, token: int) -> None:
        """Advance by a token, which has to be allowed."""
        self._ids = (*self._ids, token)
        self._node = self._node[token]
        if not self._node:
            self._parts = (*self._parts, self._trie.texts[self._ids])
            self._trie = self._next(self._parts)
            self._node, self._ids = self._trie.root, ()

    def _next(self, parts: tuple[str, ...]) -> Trie:
        """Return the options after some parts."""
        return self._tries.of(self._answers.options(parts))
