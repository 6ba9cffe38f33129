"""Quality job of answers: check a shard and score it.

The check verifies that the shard is what its metadata claims. The score is for training.

**Quality** is the geometric mean of components in [0, 1]:

- ``legality``: share of legal answers.
- ``parsing``: share of answers that ended as answers do.
- ``diversity``: share of distinct prompts among the rows; a share of 1/3 or more scores 1.
- ``originality``: share of distinct games; a share of 1/2 or more scores 1.
- ``completion``: share of games that were not truncated, at least 1/10.

``answer_tokens``, the mean length of an answer, and ``repetition``, the share of its tokens that repeat the token
before, are reported with the components and do not count.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import prod

import numpy as np

from flyball.app.config import GameConfig
from flyball.app.core import ShardKey
from flyball.app.engine import Report
from flyball.app.job_specs import InspectionResult, InspectionSpec, job
from flyball.app.language.base_model import Vocabulary, vocabulary_of
from flyball.app.language.text_game import IllegalAnswer
from flyball.app.language.text_games import open_text_table
from flyball.app.language.token_shard import TokenShard, get_token_shard
from flyball.app.play.inspection import (
    ENOUGH_DIVERSITY,
    ENOUGH_ORIGINALITY,
    FLOOR,
    check_delivered_once,
    check_origin,
    check_repetition,
    opened_store,
    sample_of,
)
from flyball.app.store import BlobStore, game_seed

SCORED = ("legality", "parsing", "diversity", "originality", "completion")


@job
def inspect(spec: InspectionSpec, report: Report) -> InspectionResult:
    """Delete spent shards, then inspect a shard of answers (a job).

    Raises ``MissingBlob``, ``DamagedBlob`` for a changed bit, ``ForeignShard`` or ``RepeatedShard``.
    """
    store = opened_store(spec)
    check_delivered_once(spec)
    shard = get_token_shard(store, spec.shard)
    check_origin(spec, shard.meta, open_text_table(spec.config, 0).spec.rules_version)
    tokens = np.add.reduceat(shard.log_prob, shard.offsets[:-1])
    log_probs = np.bincount(shard.game, weights=tokens, minlength=shard.games).astype(np.float64)
    check_repetition(store, spec, _games(shard), log_probs, _games_of)
    report({"rows": shard.rows, "games": shard.games})
    components = components_of(shard)
    score = prod(components[name] for name in SCORED) ** (1 / len(SCORED))
    sample = sample_of(spec, shard.games)
    vocabulary = vocabulary_of(store, spec.config.language.base, shard.meta.base)
    failures = [text for game in sample for text in _differences(spec.config, shard, game, vocabulary)]
    return InspectionResult(
        score=score, components=components, checked=len(sample), against="its own rules", failures=tuple(failures)
    )


def components_of(shard: TokenShard) -> dict[str, float]:
    """Return a shard's figures by name; see the module's docstring."""
    prompts, answers = [], []
    for row in range(shard.rows):
        begin, end = int(shard.offsets[row]), int(shard.offsets[row + 1])
        middle = begin + int(shard.prompt_length[row])
        prompts.append(shard.ids[begin:middle].tobytes())
        answers.append(shard.ids[middle:end].tolist())
    pairs = [a == b for answer in answers for a, b in pairwise(answer)]
    games = _games(shard)
    return {
        "legality": float(shard.legal.mean()),
        "parsing": float(shard.parsed.mean()),
        "diversity": min(1.0, len(set(prompts)) / shard.rows / ENOUGH_DIVERSITY),
        "originality": min(1.0, len(set(games)) / shard.games / ENOUGH_ORIGINALITY),
        "completion": max(FLOOR, 1 - float(shard.truncated.mean())),
        "answer_tokens": float(np.mean([*map(len, answers)])),
        "repetition": float(np.mean(pairs)) if pairs else 0.0,
    }


def _games_of(store: BlobStore, key: ShardKey) -> list[bytes]:
    return _games(get_token_shard(store, key))


def _games(shard: TokenShard) -> list[bytes]:
    """Return the seats and answers of each game as bytes."""
    games = map(shard.played_answers, range(shard.games))
    return ["\0".join(f"{seat}{text}" for seat, text in played).encode() for played in games]


def _differences(config: GameConfig, shard: TokenShard, game: int, vocabulary: Vocabulary) -> Iterator[str]:
    """Yield the differences between a recorded game and its replay. The replay uses the game's seed and its answers."""
    table = open_text_table(config, 1)
    table.reset([0], [game_seed(shard.meta.seed, int(shard.start[game]))], [0])
    prompts = {
        (
            int(shard.seat[row]),
            shard.ids[(at := int(shard.offsets[row])) : at + int(shard.prompt_length[row])].tobytes(),
        )
        for row in np.flatnonzero(shard.game == game).tolist()
    }
    for seat, text in shard.played_answers(game):
        for turn in table.pending():
            prompts.discard((turn.seat, np.array(vocabulary.encode(turn.prompt), dtype=np.int32).tobytes()))
        try:
            table.submit(0, seat, text)
        except IllegalAnswer as error:
            yield f"game {game}: {error.message}"
            return
        table.advance()
    if prompts:
        yield f"game {game}: {len(prompts)} prompts are not those of its positions"
    if table.running()[0] or not np.allclose(table.returns()[0], shard.returns[game], atol=1e-6):
        yield f"game {game}: its outcome is {table.returns()[0].tolist()}, not {shard.returns[game].tolist()}"
