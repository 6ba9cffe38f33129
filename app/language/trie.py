"""Tries of token ids: decoding and training along legal answers only."""

from collections.abc import Callable

from app.language.text_game import Answers


class Trie:
    """The options of a part of an answer, by their tokens."""

    def __init__(self, options: tuple[str, ...], encode: Callable[[str], list[int]]) -> None:
        self.root: dict[int, dict[int, object]] = {}
        self.texts: dict[tuple[int, ...], str] = {}
        for option in options:
            ids, node = tuple(encode(option)), self.root
            for token in ids:
                node = node.setdefault(token, {})  # type: ignore[assignment]
            self.texts[ids] = option


class Tries:
    """The tries of a tokenizer, each made once."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._made: dict[tuple[str, ...], Trie] = {}

    def of(self, options: tuple[str, ...]) -> Trie:
        """Return the trie of some options."""
        if options not in self._made:
            if len(self._made) >= 10_000:  # a game may have ever new options
                self._made.clear()
            self._made[options] = Trie(options, self._encode)
        return self._made[options]


class Cursor:
    """The place in an answer that is being decoded."""

    def __init__(self, answers: Answers, tries: Tries) -> None:
        self._answers, self._tries = answers, tries
        self._parts: tuple[str, ...] = ()
        self._begin()

    def _begin(self) -> None:
        options = self._answers.options(self._parts)
        self._trie = self._tries.of(options)
        self._node, self._ids = self._trie.root, ()

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
        self._node = self._node[token]  # type: ignore[assignment]
        if not self._node:
            self._parts = (*self._parts, self._trie.texts[self._ids])
            self._begin()

    def forced(self) -> list[int] | None:
        """Return the tokens that are left of an answer without any further choice; None if there is a choice."""
        tokens: list[int] = []
        parts, trie, node, ids = self._parts, self._trie, self._node, self._ids
        while len(node) == 1:
            (token,) = node
            tokens.append(token)
            ids, node = (*ids, token), node[token]  # type: ignore[assignment]
            if not node:
                parts = (*parts, trie.texts[ids])
                trie = self._tries.of(self._answers.options(parts))
                node, ids = trie.root, ()
        return None if node else tokens
