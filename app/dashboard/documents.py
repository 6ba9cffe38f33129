"""The documents of Flyball, and their Markdown as HTML.

A document is named by its path in the repository. The wheel has it under the same path, so that links between documents
work everywhere.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup

from flyball.app.core.shipped import shipped

ADDRESS = "/docs"
"""Address of the documents on a server; a document's path follows."""

GUIDES: Mapping[str, Mapping[str, str]] = {
    "First steps": {
        "README.md": "What it is, how to start it and look around, what it guarantees and where it ends.",
        "ADR/guide/demonstration.md": "A guided tour of five minutes: planted troubles, and who answers them.",
        "ADR/guide/operating.md": "How commands play together: status, exit codes, training, rehearsing failures.",
        "ADR/guide/dashboard.md": "The pages of the dashboard, and how to act in them.",
    },
    "Operating": {
        "deploy/README.md": "A cluster in ten commands; services, settings, upgrades, backups.",
        "deploy/runbooks.md": "What to do about each finding of flyball doctor, and about each alert.",
        "ADR/guide/planning.md": "How many processes a cluster needs, tried in a simulation.",
        "ADR/guide/security.md": "Keys of machines and people, and what each may do.",
        "ADR/guide/store.md": "Where models and shards are: a folder, or S3.",
        "ADR/guide/monitoring.md": "Prometheus, Grafana, webhooks, traces, logs.",
        "ADR/guide/trackers.md": "A run in MLflow, or Weights & Biases.",
        "ADR/guide/repairing.md": "Backups, the journal of a long run, damage.",
        "ADR/guide/devices.md": "GPUs, precision, and trainings shared by processes.",
        "ADR/guide/ray.md": "Jobs on a Ray cluster.",
    },
    "Reference": {
        "ADR/guide/cli.md": "Every command and option.",
        "ADR/guide/settings.md": "Every setting: default, bounds, meaning, variable.",
        "ADR/guide/events.md": "Every event: who emits it, and who reads it.",
        "ADR/guide/metrics.md": "Every metric for Prometheus.",
        "ADR/guide/python_api.md": "Flyball from Python.",
    },
    "Games and learning": {
        "ADR/guide/search.md": "Learning from tree searches: Gumbel AlphaZero.",
        "ADR/guide/shogi.md": "Shogi and minishogi, and engines that speak USI.",
        "ADR/guide/diplomacy.md": "Diplomacy: rules, notation, bots.",
        "ADR/guide/language.md": "Language models that play games as text.",
        "ADR/guide/comparing.md": "What controllers are worth on real games.",
    },
    "Your own": {
        "ADR/guide/own_loop.md": "A loop that exists already, governed where it is.",
        "ADR/guide/observing.md": "Advice beside a loop that goes on: its files are read.",
        "ADR/guide/third_party_loops.md": "Loops of Stable-Baselines3, OpenSpiel and TRL, governed unchanged.",
        "ADR/guide/own_game.md": "A game: one Python class.",
        "ADR/guide/other_games.md": "Games of OpenSpiel and PettingZoo; hidden cards.",
        "ADR/guide/own_network.md": "A network: a PyTorch module.",
        "ADR/guide/own_player.md": "A player: a Python object, or an engine.",
        "ADR/guide/own_trainer.md": "A trainer: a function, or a command in any language.",
        "ADR/guide/own_controller.md": "A controller that takes knobs over from ours.",
        "ADR/guide/own_backend.md": "A backend: all jobs that make and play models.",
    },
    "How it is made": {
        "ADR/README.md": "Daemons, bus, journal, controllers; where to find what; how to add and contribute.",
    },
    "Measurements": {
        "tests/benchmarks/RESULTS.md": "All measured claims, by subject.",
        "tests/benchmarks/results/games.md": "Rules of our own beside OpenSpiel's and others'.",
        "tests/benchmarks/results/play.md": "Evaluations, judges, self-play.",
        "tests/benchmarks/results/ratings.md": "Ratings beside round robins; errors of gates.",
        "tests/benchmarks/results/learning.md": "What PPO learns, and how fast.",
        "tests/benchmarks/results/search.md": "What learning by search brings; pgx and mctx beside it.",
        "tests/benchmarks/results/networks.md": "Kinds of network, precision, GPUs.",
        "tests/benchmarks/results/language.md": "Generators, GRPO, canaries.",
        "tests/benchmarks/results/feedback.md": "What controllers bring and cost on real games.",
        "tests/benchmarks/results/simulation.md": "What controllers bring in a simulated cluster; plans.",
        "tests/benchmarks/results/bus.md": "Keys, signs of life, archives, checks, replays.",
        "tests/benchmarks/results/store.md": "Sizes and times of shards and blobs.",
        "tests/benchmarks/results/running.md": "Memory, clusters, dashboard, rehearsed troubles, tests.",
    },
}
"""Summaries of the guides in a line, by group and path."""

DECISIONS = "Decisions"
DECISION = re.compile(r"(\d{3})-[\w-]+\.md")


class Document(NamedTuple):
    """A document; ``path`` is its path in the repository. Decisions have an empty ``summary``."""

    path: str
    title: str
    summary: str

    @property
    def address(self) -> str:
        """The document's path on a server."""
        return f"{ADDRESS}/{self.path}"


class Section(NamedTuple):
    """A heading of a document, with the name of its anchor."""

    anchor: str
    title: str


class Page(NamedTuple):
    """A document as HTML, and its main sections."""

    html: Markup
    sections: tuple[Section, ...]


def root() -> Path:
    """Return the documents' folder: the repository or the installed package."""
    return shipped("ADR", "ADR").parent


@cache
def documents() -> Mapping[str, Sequence[Document]]:
    """Return all documents by the heading of their group, in order."""
    groups = {
        heading: [Document(path, _title(path), summary) for path, summary in guides.items()]
        for heading, guides in GUIDES.items()
    }
    records = sorted(path.name for path in (root() / "ADR").iterdir() if DECISION.fullmatch(path.name))
    return groups | {DECISIONS: [Document(f"ADR/{name}", _title(f"ADR/{name}"), "") for name in records]}


@cache
def by_path() -> Mapping[str, Document]:
    """Return all documents by their paths."""
    return {document.path: document for group in documents().values() for document in group}


@cache
def images() -> frozenset[str]:
    """Return the paths of the documents' images."""
    return frozenset(f"ADR/guide/{path.name}" for path in (root() / "ADR" / "guide").glob("*.png"))


def _text(path: str) -> str:
    return (root() / path).read_text(encoding="utf-8")


def _title(path: str) -> str:
    return _text(path).partition("\n")[0].removeprefix("# ")


@cache
def page_of(path: str) -> Page:
    """Return a document's page; ``path`` is one of ``by_path``."""
    tokens = _markdown.parse(_text(path))
    _link(tokens, path)
    sections = tuple(_name_headings(tokens))
    for token in tokens:
        if (align := token.attrs.pop("style", None)) == "text-align:right":  # the policy allows no styles in pages
            token.attrs["class"] = "n"
        elif align:
            token.attrs["class"] = "centred"
    html = _markdown.renderer.render(tokens, _markdown.options, {})
    return Page(Markup(html), sections)  # noqa: S704 - the renderer escapes, and admits no HTML in the Markdown


def _name_headings(tokens: Sequence[Token]) -> Iterator[Section]:
    """Give headings the anchors that GitHub gives them. Iterates over the headings of the second level."""
    used = dict[str, int]()
    for token, content in pairwise(tokens):
        if token.type == "heading_open":
            title = "".join(part.content for part in content.children or ())
            anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
            used[anchor] = used.get(anchor, -1) + 1
            anchor += f"-{used[anchor]}" if used[anchor] else ""
            token.attrs["id"] = anchor
            if token.tag == "h2":
                yield Section(anchor, title)


def _link(tokens: Sequence[Token], path: str) -> None:
    """Point links and images to the server's addresses. Links to files that it does not serve become their texts."""
    for token in tokens:
        ends = list[Token]()
        for part in token.children or ():
            if part.type == "image":
                part.attrs["src"] = join(ADDRESS, _target(str(part.attrs["src"]), path))
            elif part.type == "link_open":
                href = str(part.attrs["href"])
                served = _served(href, path)
                part.attrs["href"] = served or ""
                part.hidden = served is None
                if urlsplit(href).scheme:
                    part.attrs["rel"] = "noreferrer"
                ends.append(part)
            elif part.type == "link_close":
                part.hidden = ends.pop().hidden


def _target(href: str, path: str) -> str:
    """Return the repository path that a link of a document names."""
    return normpath(join(dirname(path), href))


def _served(href: str, path: str) -> str | None:
    """Return the address that a link leads to; None for unserved files."""
    file, hash_, anchor = href.partition("#")
    if urlsplit(href).scheme or not file:
        return href
    target = _target(file, path)
    return f"{ADDRESS}/{target}{hash_}{anchor}" if target in by_path() else None


class _Renderer(RendererHTML):
    """Makes tables and code scrollable, also by keyboard; omits hidden links."""

    def table_open(self, *_: Any) -> str:
        return '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>\n'

    def table_close(self, *_: Any) -> str:
        return "</table></div>\n"

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _focusable(super().fence(tokens, idx, options, env))

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _focusable(super().code_block(tokens, idx, options, env))

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "" if tokens[idx].hidden else self.renderToken(tokens, idx, options, env)

    link_close = link_open


def _focusable(code: str) -> str:
    return code.replace("<pre>", '<pre tabindex="0">', 1)


# HTML in a document is shown as text.
_markdown = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer).enable(["table", "strikethrough"])
