"""Self-play and matches of language models."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball.app.config import Compute, GameConfig
from flyball.app.core import RANDOM, BadUsage, ModelHash, derive_point, derive_seed, is_model
from flyball.app.engine import Report
from flyball.app.job_specs import BatchResult, BatchSpec, MatchGames, SelfplaySpec, job
from flyball.app.language.generator import Generator, adapter_name
from flyball.app.language.models import GENERATORS
from flyball.app.language.rollout import HERO, HeroAnswer, TextOutcomes, TextPlayer, TextSchedule, play_texts
from flyball.app.language.text_games import BASE_MODEL, open_text_table
from flyball.app.language.token_shard import TokenShard, TokenShardMeta, put_token_shard
from flyball.app.learning.devices import decided
from flyball.app.play.match_statistics import match_games, seat_wins
from flyball.app.play.matches import margin_of
from flyball.app.play.recording import NoExperience
from flyball.app.play.selfplay import SelfplayCounts
from flyball.app.store import BlobStore, game_seed, open_store

IN_FLIGHT = 128
"""Number of games played at once."""

SAMPLE = 32
"""Games of the random bot from which the win margin of a game follows."""


def grouped_schedule(
    games: int, players: int, lineups: Sequence[tuple[Sequence[int], int]], *, group: int, openings: int, seed: int
) -> TextSchedule:
    """Return a schedule of games in groups of at most ``group``.

    Games of a group have the same start, and the hero in the same seat.

    A lineup is the agents in the seats after the hero's, and a number of games, which are split evenly into groups. The
    hero's seat rotates over the groups of all lineups, beginning with a seat drawn from ``seed``, because otherwise a
    request with fewer groups than seats would always leave the same seats out. In the games left over, the hero takes
    every seat.
    """
    seating = np.full((games, players), HERO, dtype=np.int8)
    first_seat = derive_seed(seed, "seat") % players
    blocks = [*lineups, ((), games - sum(count for _, count in lineups))]
    starts: list[int] = []
    for opponents, count in blocks:
        first, start = len(starts), starts[-1] + 1 if starts else 0
        groups = start + np.arange(count) * -(-count // group) // max(1, count)
        for offset, opponent in enumerate(opponents, 1):
            seating[first + np.arange(count), (first_seat + groups + offset) % players] = opponent
        starts += groups.tolist()
    count = starts[-1] + 1
    return TextSchedule(
        starts=starts,
        seeds=[game_seed(seed, start) for start in range(count)],
        openings=[int(derive_point(seed, "opening", start) * (openings + 1)) for start in range(count)],
        seating=seating,
        seed=derive_seed(seed, "choices"),
    )


@job
def play(spec: SelfplaySpec, report: Report) -> SelfplayCounts:
    """Play games, and store a shard of answers (a job).

    Deterministic on one kind of device, except ``seconds``. Raises ``ModelMismatch``,
    ``NoBaseModel``, ``MissingBlob``, ``DamagedBlob``, ``UnknownGame``, ``NoExperience`` or ``MissingDevice``; with
    servers, also what ``ServedGenerator`` raises.
    """
    began, store, config = perf_counter(), open_store(spec.store), spec.config
    settings = config.language
    names = (spec.model, *spec.opponents)
    with GENERATORS.lock:
        generator = generator_for(store, config, names, spec)
        agents = [player_of(config, name, config.selfplay.temperature) for name in names]
        agents[HERO] = TextPlayer(agents[HERO].adapter, None, spec.temperature, settings.constrained)
        schedule = grouped_schedule(
            spec.games,
            config.players,
            [([names.index(name) for name in lineup.opponents], lineup.games) for lineup in spec.lineups],
            group=settings.group_games,
            openings=config.selfplay.opening_plies,
            seed=spec.seed,
        )
        table = open_text_table(config, min(spec.games, IN_FLIGHT))
        outcomes, answers = play_texts(table, agents, schedule, generator, most_tokens=settings.most_tokens)
        assert generator is not None  # because the hero is a model
        base = generator.fingerprint
    report({"games": spec.games})
    meta = TokenShardMeta(
        config_key=config.key,
        rules_version=table.spec.rules_version,
        model=spec.model,
        opponents=spec.opponents,
        seed=spec.seed,
        worker=spec.worker,
        temperature=spec.temperature,
        base=base,
        constrained=settings.constrained,
    )
    shard = token_shard(outcomes, answers, schedule, meta, settings.illegal_cost)
    wins, draws = seat_wins(outcomes.returns, outcomes.truncated)
    return SelfplayCounts(
        shard=put_token_shard(store, shard),
        rows=shard.rows,
        games=spec.games,
        mean_length=float(outcomes.lengths.mean()),
        truncated=int(outcomes.truncated.sum()),
        wins=wins,
        draws=draws,
        seconds=perf_counter() - began,
    )


def generator_for(store: BlobStore, config: GameConfig, players: Sequence[str], compute: Compute) -> Generator | None:
    """Return a generator with the adapters among ``players`` loaded.

    Returns None if all players are bots. Raises ``BadUsage`` if the base model plays without an adapter, and what
    ``GENERATORS.get`` raises.
    """
    models = [ModelHash(name) for name in players if is_model(name)]
    if not models:
        if BASE_MODEL in players:
            raise BadUsage(
                f"{BASE_MODEL} plays only beside an adapter, which says which base model is meant.",
                hint="Name an adapter as the model, for instance current; the first one plays as its base model does.",
            )
        return None
    return GENERATORS.get(store, config, models, decided(compute, config.backend))


def player_of(config: GameConfig, name: str, temperature: float) -> TextPlayer:
    """Return the agent of a player's name. The name is a model's hash, ``BASE_MODEL``, or a bot's."""
    if name == BASE_MODEL:
        return TextPlayer(temperature=temperature)
    if is_model(name):
        return TextPlayer(adapter_name(config.key, ModelHash(name)), None, temperature)
    return TextPlayer(bot=name)


def token_shard(
    outcomes: TextOutcomes,
    answers: Sequence[HeroAnswer],
    schedule: TextSchedule,
    meta: TokenShardMeta,
    illegal_cost: float,
) -> TokenShard:
    """Return the hero's answers, by game, seat and step, as a shard. Raises ``NoExperience`` without answers."""
    if not answers:
        raise NoExperience(
            "The hero had nothing to answer in any of these games.", hint="Play more games, or give it more seats."
        )
    rows = sorted(answers, key=lambda row: (row.game, row.seat, row.step))
    seats = outcomes.returns.shape[1]
    starts = np.array(schedule.starts, dtype=np.int32)
    game, seat = np.array([row.game for row in rows], np.int32), np.array([row.seat for row in rows], np.int8)
    legal = np.array([row.legal for row in rows])
    episode = game * seats + seat
    illegal = np.bincount(episode, weights=~legal) / np.maximum(np.bincount(episode), 1)
    reward = outcomes.returns[game, seat] - illegal_cost * illegal[episode]
    texts = [(number, by, text.encode()) for number, turns in enumerate(outcomes.histories) for by, text in turns]
    return TokenShard(
        **_tokens(rows),
        group=starts[game] * seats + seat,
        reward=reward.astype(np.float32),
        seat=seat,
        game=game,
        step=np.array([row.step for row in rows], np.int32),
        legal=legal,
        parsed=np.array([row.completion.finish == "stop" for row in rows]),
        truncated=outcomes.truncated,
        returns=outcomes.returns,
        scores=outcomes.scores,
        start=starts,
        said=np.frombuffer(b"".join(text for _, _, text in texts), dtype=np.uint8),
        said_offsets=np.cumsum([0, *(len(text) for _, _, text in texts)], dtype=np.int64),
        said_seat=np.array([by for _, by, _ in texts], dtype=np.int8),
        said_game=np.array([number for number, _, _ in texts], dtype=np.int32),
        meta=meta,
    )


def _tokens(rows: Sequence[HeroAnswer]) -> dict[str, NDArray[Any]]:
    """Return the columns of a shard that have a value per token."""
    ids: list[int] = []
    mask: list[bool] = []
    scores: list[float] = []
    allowed: list[int] = []
    counts: list[int] = []
    ends = [0]
    for row in rows:
        answer = row.completion
        before = [0] * len(answer.prompt)
        ids += [*answer.prompt, *answer.ids]
        mask += [*map(bool, before), *(len(legal) != 1 for legal in answer.allowed)]
        scores += [*before, *answer.log_probs]
        counts += [*before, *map(len, answer.allowed)]
        for legal in answer.allowed:
            allowed += legal
        ends.append(len(ids))
    return {
        "ids": np.array(ids, np.int32),
        "offsets": np.array(ends, np.int64),
        "loss_mask": np.array(mask, np.bool_),
        "log_prob": np.array(scores, np.float32),
        "allowed": np.array(allowed, np.int32),
        "allowed_counts": np.array(counts, np.int32),
        "prompt_length": np.array([len(row.completion.prompt) for row in rows], np.int32),
    }


@job
def match(spec: BatchSpec, report: Report) -> BatchResult:
    """Play a batch of games (a job).

    Deterministic on a CPU, except ``seconds``. Answers are legal ones, whatever the configuration says. Raises
    ``ModelMismatch``, ``NoBaseModel``, ``MissingBlob``, ``DamagedBlob``, ``UnknownGame`` or ``MissingDevice``.
    """
    began, config, part, name = perf_counter(), spec.config, spec.batch, spec.batch.opponent.player
    with GENERATORS.lock:
        generator = generator_for(open_store(spec.store), config, (spec.model, name), spec)
        agents = [player_of(config, player, config.evaluation.temperature) for player in (spec.model, name)]
        games, _ = play_match(
            config, agents, generator, seed=derive_seed(spec.seed, "match", name), games=part.games, first=part.first
        )
    report({"opponent": part.opponent.name, "games": part.games})
    return BatchResult(games=games, seconds=perf_counter() - began)


def play_match(
    config: GameConfig,
    agents: Sequence[TextPlayer],
    generator: Generator | None,
    *,
    seed: int,
    games: int,
    first: int = 0,
) -> tuple[MatchGames, list[HeroAnswer]]:
    """Play a match; return the games and the hero's answers.

    ``first`` is the number of the first game, if only a part of the match is played. A rotation is as many games as
    there are seats: their start is the same, and the hero takes each seat.
    """
    numbers = np.arange(first, first + games)
    rotations, heroes = np.divmod(numbers, config.players)
    seating = np.ones((games, config.players), dtype=np.int8)
    seating[np.arange(games), heroes] = HERO
    before = int(rotations[0])
    schedule = TextSchedule(
        starts=(rotations - before).tolist(),
        seeds=[derive_seed(seed, "deal", rotation) for rotation in range(before, int(rotations[-1]) + 1)],
        openings=[config.evaluation.openings(dealt=False)] * (int(rotations[-1]) + 1 - before),
        seating=seating,
        seed=derive_seed(seed, "choices"),
        first=first,
    )
    table = open_text_table(config, min(games, IN_FLIGHT))
    outcomes, answers = play_texts(table, agents, schedule, generator, most_tokens=config.language.most_tokens)
    histories = [list("\0".join(f"{seat}{text}" for seat, text in played).encode()) for played in outcomes.histories]
    margin = margin_of(config, _random_outcomes, decisive=table.spec.decisive)
    ended = outcomes.returns, heroes, outcomes.truncated, outcomes.lengths, histories
    return match_games(*ended, openings=outcomes.openings, margin=margin), answers


def _random_outcomes(config: GameConfig) -> NDArray[np.float32]:
    """Return the outcomes [G, P] of games that the random bot plays in all seats."""
    schedule = TextSchedule(
        starts=list(range(SAMPLE)),
        seeds=[derive_seed(0, "win margin", number) for number in range(SAMPLE)],
        openings=[0] * SAMPLE,
        seating=np.full((SAMPLE, config.players), HERO, dtype=np.int8),
        seed=0,
    )
    table = open_text_table(config, min(SAMPLE, IN_FLIGHT))
    outcomes, _ = play_texts(table, [TextPlayer(bot=RANDOM)], schedule, None, most_tokens=config.language.most_tokens)
    return outcomes.returns
