"""Tries of token ids: decoding and training along legal answers only."""

from collections.abc import Callable
from typing import TypeAlias

from app.language.text_game import Answers

Node: TypeAlias = dict[int, "Node"]
"""The next tokens, each with the node that it leads to; empty at an option's end."""

MOST_TRIES = 10_000
"""Tries that are kept: a game may have ever new options."""


class Trie:
    """The options of a part of an answer, by their tokens."""

    def __init__(self, options: tuple[str, ...], encode: Callable[[str], list[int]]) -> None:
        self.root: Node = {}
        self.texts: dict[tuple[int, ...], str] = {}
        for option in options:
            ids, node = tuple(encode(option)), self.root
            for token in ids:
                node = node.setdefault(token, {})
            self.texts[ids] = option


class Tries:
    """The tries of a tokenizer, each made once."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._made: dict[tuple[str, ...], Trie] = {}

    def of(self, options: tuple[str, ...]) -> Trie:
        """Return the trie of some options."""
        if options not in self._made:
            if len(self._made) >= MOST_TRIES:
                self._made.clear()
            self._made[options] = Trie(options, self._encode)
        return self._made[options]


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
        """The legal next tokens; none if the answer is complete."""
        return tuple(self._node)

    @property
    def text(self) -> str:
        """The complete parts so far."""
        return "".join(self._parts)

    def take(self, token: int) -> None:
        """Go on by a token, which has to be allowed."""
        self._ids = (*self._ids, token)
        self._node = self._node[token]
        if not self._node:
            self._parts = (*self._parts, self._trie.texts[self._ids])
            self._trie, self._ids = self._next(self._parts), ()
            self._node = self._trie.root

    def forced(self) -> list[int] | None:
        """Return the tokens that are left of an answer without any further choice; None if there is a choice."""
        tokens: list[int] = []
        parts, trie, node, ids = self._parts, self._trie, self._node, self._ids
        while len(node) == 1:
            (token,) = node
            tokens.append(token)
            ids, node = (*ids, token), node[token]
            if not node:
                parts = (*parts, trie.texts[ids])
                trie, ids = self._next(parts), ()
                node = trie.root
        return None if node else tokens

    def _next(self, parts: tuple[str, ...]) -> Trie:
        """Return the options after some parts."""
        return self._tries.of(self._answers.options(parts))
