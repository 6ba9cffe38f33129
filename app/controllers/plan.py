"""One event's changes to the scheduler's table: copied on write, turned into a step at the end."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from app.config import RunSettings
from app.controllers.fair_queue import (
    FREE,
    PACED,
    SPARE,
    WAITING,
    Asked,
    ConfigRow,
    Lines,
    QueueRow,
    SchedulerRow,
    WorkerRow,
    page_name,
)
from app.controllers.needs import US
from app.controllers.state import FeedbackState, state_of
from app.controllers.trend import SECONDS_PER_HOUR
from app.core import ConfigKey, ModelHash, derive_id, derive_seed, lineups
from app.events import (
    Category,
    Emission,
    Event,
    Lineup,
    MatchmakingUpdated,
    NodeDegraded,
    NodeRecovered,
    OpponentSampled,
    Payload,
    SampledOpponent,
    SelfplayRequested,
    Step,
)

DRAWS = 8
"""Lineups of a request: more vary the opponents more, fewer keep the batches of games against each larger."""

DISTINCT = 2
"""Different opponents at one table (cluster sampling)."""

ITSELF = "mirror"

KEPT = 4096
"""Lineups and draws that are kept: few opponents are met again and again, and to validate one is dear."""


class Meeting(NamedTuple):
    """Lineups for a request, and what was drawn for them; both are empty when the model meets only itself."""

    lineups: tuple[Lineup, ...] = ()
    draws: tuple[SampledOpponent, ...] = ()


def meeting(decided: MatchmakingUpdated | None, model: ModelHash, players: int, games: int, seed: int) -> Meeting:
    """Draw lineups of whole rotations: an opponent never changes within a game, nor between a rotation's games.

    Args:
        decided: by matchmaking. What it decided for another model holds for none.
        model: the hero.
        players: of a game.
        games: of the request; those that make no whole rotation are left to the model alone.
        seed: of the request.
    """
    if decided is None or decided.model != model or all(pick.category == ITSELF for pick in decided.picks):
        return Meeting()
    weights = {place: pick.probability for place, pick in enumerate(decided.picks)}
    rotations = games // players
    seats, distinct = players - 1, min(players - 1, DISTINCT)
    firsts = [-(-draw * seats // distinct) for draw in range(distinct)]  # where each draw sits first
    met, draws = list[Lineup](), list[SampledOpponent]()
    count = min(DRAWS, rotations)
    for number, places in enumerate(lineups(weights, count, seats=seats, distinct=distinct, seed=seed)):
        share = players * ((number + 1) * rotations // count - number * rotations // count)
        seated = [decided.picks[place] for place in places]
        met.append(_lineup(tuple([pick.agent for pick in seated]), share))
        draws += [_sampled(seated[first].agent, seated[first].category, share) for first in firsts]
    return Meeting(tuple(met), tuple(draws))


@lru_cache(maxsize=KEPT)
def _lineup(opponents: tuple[str, ...], games: int) -> Lineup:
    return Lineup(opponents=opponents, games=games)


@lru_cache(maxsize=KEPT)
def _sampled(agent: str, category: Category, games: int) -> SampledOpponent:
    return SampledOpponent(agent=agent, category=category, games=games)


NAME = "SelfplayScheduler"
QUEUE, WORKER, CONFIG, MATCHMAKING = "queue", "worker:", "config:", "matchmaking:"
HIGHEST = 2.0
"""The highest priority; the lowest is the starvation floor's share of it."""

UNCERTAIN_ELO = 100.0
"""A rating's standard error that doubles the priority."""

EMPTY, FIRST = SchedulerRow(), ConfigRow()
"""Defaults for missing rows."""

CREDIT_TURNS = 2
"""Turns at the lowest priority that one who was away may catch up."""

MOST_LEASES = 2
"""Longest time between requests that counts, in leases, because later ones were given up."""

NEWEST_GAP = 1 / 32
"""Least weight of the newest time between requests in the mean, because requests come in bursts."""

NEXT_PACED = page_name(PACED, 0)


def is_due(rows: Mapping[str, SchedulerRow], now_us: int) -> bool:
    """Return whether the time of a configuration has come."""
    page = rows.get(NEXT_PACED, EMPTY).page
    return page is not None and page[0][0] <= now_us


class Plan:
    """The table as one event changes it."""

    def __init__(
        self,
        settings: RunSettings,
        rows: Mapping[str, SchedulerRow],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],
    ) -> None:
        self.settings, self.now_us = settings, event.recorded_us
        self._rows, self._event, self._states = rows, event, states
        self._configs: dict[str, ConfigRow] = {}
        self._workers: dict[str, WorkerRow] = {}
        self._emissions: list[Emission] = []
        self._before = rows.get(QUEUE, EMPTY).queue
        self.queue = self._before or QueueRow(swept_us=event.recorded_us)
        self._lines = Lines(lambda name: rows.get(name, EMPTY).page or (), self.queue.sizes)

    def config(self, key: str) -> ConfigRow:
        """Return a configuration's row; before any event about it, an empty one."""
        return self._configs.get(key) or self._rows.get(CONFIG + key, EMPTY).config or FIRST

    def worker(self, name: str) -> WorkerRow | None:
        """Return a worker's row, if it was ever heard."""
        return self._workers.get(name) or self._rows.get(WORKER + name, EMPTY).worker

    def set_config(self, key: str, row: ConfigRow) -> None:
        """Change a configuration's row."""
        self._configs[key] = row

    def set_worker(self, name: str, row: WorkerRow) -> None:
        """Change a worker's row, or add it; count its free places."""
        before = self.worker(name)
        idle, slots = (before.idle, before.slots) if before else (0, 0)
        self._freed(FREE, name, row.idle - idle)
        self._freed(SPARE, name, row.slots - row.idle - (slots - idle))
        self._workers[name] = row

    def _freed(self, line: str, name: str, places: int) -> None:
        for number in range(self.queue.places, self.queue.places + places):
            self._lines.push(line, number, name)
            self.queue = self.queue.replace(places=number + 1)

    def emit(self, data: Payload) -> None:
        """Say something that concerns no single configuration."""
        self._emissions.append(Emission(data))

    def release(self, key: str, row: ConfigRow, asked: Asked, *, failed: bool = False) -> ConfigRow:
        """Take a request off its worker: it was played, or ``failed`` and is given up by the next sweep."""
        self._unserve(key, asked)
        ended = asked.replace(ended=True, failed=failed, seen_us=self.now_us)
        return row.replace(out=tuple(ended if one is asked else one for one in row.out))

    def forget(self, key: str, row: ConfigRow, requests: Iterable[Asked]) -> ConfigRow:
        """Expect nothing of some requests any more."""
        given_up = frozenset(asked.request for asked in requests)
        for asked in row.out:
            if asked.request in given_up:
                self._unserve(key, asked)
        return row.replace(out=tuple(one for one in row.out if one.request not in given_up))

    def _unserve(self, key: str, asked: Asked) -> None:
        if not asked.ended and (worker := self.worker(asked.worker)):
            serving = list(worker.serving)
            if key in serving:
                serving.remove(ConfigKey(key))
                self.set_worker(asked.worker, worker.replace(serving=tuple(serving)))

    def blame(self, row: ConfigRow, name: str | None, error: str) -> ConfigRow:
        """Count a failed request against its worker; several in a row pause it, each time longer.

        A configuration pauses no worker if it also failed at another worker and has brought no good shard since this
        worker began to fail, because an unreadable model would otherwise stop one worker after the other. Failures
        during a pause don't count: they were requested before it.
        """
        worker = self.worker(name) if name else None
        if name is None or worker is None or worker.rests_until_us is not None:
            return row
        limits, failures = self.settings.feedback.nodes, worker.failures + 1
        began_us = worker.failing_us if worker.failures else self.now_us
        changed: dict[str, Any] = {"failures": failures, "failing_us": began_us}
        fails_elsewhere = row.failed_at not in (None, name) and row.good_us < began_us
        if failures >= limits.failures and not fails_elsewhere:
            pause = min(limits.longest_pause_seconds, limits.pause_seconds * 2.0 ** min(worker.pauses, 32))
            changed |= {"pauses": worker.pauses + 1, "rests_until_us": self.now_us + round(pause * US)}
            self.emit(NodeDegraded(worker=name, failures=failures, pause_seconds=pause, error=error))
        self.set_worker(name, worker.replace(**changed))
        # A failure at a worker that has paused says nothing about the configuration, because the worker fails anyway.
        return row if worker.pauses else row.replace(failed_at=row.failed_at or name)

    def trust(self, name: str | None) -> None:
        """Forget a worker's failures after a good shard."""
        if name and (worker := self.worker(name)) and worker.failures:
            if worker.pauses:
                self.emit(NodeRecovered(worker=name))
            rests = worker.rests_until_us if worker.quarantined else None
            changed = {"failures": 0, "pauses": 0, "rests_until_us": rests}
            self.set_worker(name, worker.replace(**changed))

    def forget_worker(self, name: str, worker: WorkerRow, keys: Iterable[str], *, played: bool) -> None:
        """Drop a worker's requests and, if ``played``, its uninspected shards."""
        self.set_worker(name, worker.replace(serving=()))
        for key in keys:
            row = self.config(key)
            self.set_config(
                key, self.forget(key, row, [one for one in row.out if one.worker == name and (played or not one.ended)])
            )
            self.want(key)

    def want(self, key: str) -> None:
        """Queue a configuration whose rows, with those under way, do not make a training, unless it waits already.

        Should its time come sooner now, as after a block, it waits for that: ``wake`` passes over the place it had.
        """
        row = self.config(key)
        if row.model is None or (row.queued and row.due_us is None) or key not in self.settings:
            return
        needed = None if row.blocked else row.needs.rows(self.settings, key)
        if not self._lacks(row, key, needed):
            return
        due_us = self._due_us(row, needed)
        if row.due_us is not None and row.due_us <= due_us:
            return
        paced = due_us > self.now_us
        self.set_config(key, row.replace(queued=True, due_us=due_us if paced else None))
        if paced:
            self._lines.push(PACED, due_us, key)
        else:
            self._lines.push(WAITING, self._tag(row), key)

    def _lacks(self, row: ConfigRow, key: str, needed: float | None) -> bool:
        """Return whether more games are needed, ``needed`` rows making a training; ``None`` without one.

        As long as nothing is known of a request's rows, one has to suffice.
        """
        out = sum([not asked.probe for asked in row.out])
        if out and (needed is None or row.rows_per_game is None):
            return False
        promised = out * self._games(key) * (row.rows_per_game or 0.0)
        return needed is None or min(row.fresh_rows, needed) + promised < needed

    def _games(self, key: str) -> int:
        """Return the games of one request."""
        return self.settings.config(key).selfplay.games_per_request

    def _tag(self, row: ConfigRow) -> float:
        """Return the tag to wait with: that of its last finish, unless it has been away for long.

        A configuration cannot wait while its request is under way, and must not lose its share by that.
        """
        lowest = self.settings.feedback.scheduler.starvation_floor * HIGHEST
        return max(row.finish, self.queue.virtual - CREDIT_TURNS * row.seconds / lowest)

    def _due_us(self, row: ConfigRow, needed: float | None) -> int:
        """Return the earliest time of the next request: now, unless paused or penalised.

        A penalty stretches the measured mean time between two requests, because that depends more on the number of
        workers and on other configurations than on the length of a request.
        """
        if not row.requests:
            return self.now_us
        seconds = 0.0 if needed is not None else row.seconds + self.settings.feedback.scheduler.idle_seconds
        if row.rate < 1:
            seconds = max(seconds, row.seconds if row.gap_seconds is None else row.gap_seconds) / row.rate
        return row.requested_us + int(seconds * US)

    def _gap_seconds(self, row: ConfigRow) -> float | None:
        """Return the mean time between requests, updated by a new one; constant under a penalty.

        Each time is capped at ``MOST_LEASES`` leases, because the run may have been off.
        """
        if not row.requests or row.rate < 1:
            return row.gap_seconds
        longest = MOST_LEASES * self.settings.feedback.scheduler.lease_seconds
        gap, mean = min((self.now_us - row.requested_us) / US, longest), row.gap_seconds or 0.0
        return mean + max(NEWEST_GAP, 1 / row.requests) * (gap - mean)

    def wake(self) -> None:
        """Let those whose time has come wait for a worker."""
        while (paced := self._lines.first(PACED)) and paced[0] <= self.now_us:
            due_us, key = self._lines.pop(PACED)
            row = self.config(key)
            if row.due_us == due_us:
                self.set_config(key, row.replace(due_us=None))
                self._lines.push(WAITING, self._tag(row), key)

    def dispatch(self) -> None:
        """Give free places to those who wait, least tag first."""
        while (next_turn := self._lines.first(WAITING)) and (name := self._free_place(next_turn[1])):
            tag, key = self._lines.pop(WAITING)
            self.queue = self.queue.replace(virtual=tag)
            if key in self.settings:
                self._request(ConfigKey(key), name, tag)
                self.want(key)
            else:  # it is no longer played: it gives up its place, and waits again if it comes back
                self.set_config(key, self.config(key).replace(queued=False))
                self._freed(FREE, name, 1)

    def _free_place(self, key: str) -> str | None:
        """Return a free worker, otherwise one at which a request may wait.

        Waiting there saves the moment between two requests. Where they are long that is nothing, and rows that come so
        much later are more often of a model that has been replaced.
        """
        while self._lines.first(FREE):
            _, name = self._lines.pop(FREE)
            if (worker := self.worker(name)) and worker.idle:
                return name
        if self.config(key).seconds > self.settings.feedback.scheduler.waiting_seconds:
            return None
        while self._lines.first(SPARE):
            _, name = self._lines.pop(SPARE)
            if (worker := self.worker(name)) and worker.slots:
                return name
        return None

    def _request(self, key: ConfigKey, name: str, tag: float) -> None:
        row, worker = self.config(key), self.worker(name)
        assert row.model is not None  # without one it does not wait
        assert worker is not None  # it was just found
        state = state_of(self._states, key)
        request_id = derive_id(NAME, self._event.id, len(self._emissions))
        asked = Asked(request=request_id, worker=name, at_us=self.now_us, seen_us=self.now_us, probe=worker.quarantined)
        turn = {
            "out": (*row.out, asked),
            "requests": row.requests + 1,
            "requested_us": self.now_us,
            "gap_seconds": self._gap_seconds(row),
            "finish": tag + row.seconds / self._priority(state),
            "queued": False,
        }
        config, games = self.settings.config(key), self._games(key)
        seed = derive_seed(self.settings.seed, key, "selfplay", row.requests)
        met = meeting(self._rows.get(MATCHMAKING + key, EMPTY).matchmaking, row.model, config.players, games, seed)
        temperature = row.base_temperature or config.selfplay.temperature
        request = SelfplayRequested(
            worker=name,
            model=row.model,
            lineups=met.lineups,
            games=games,
            seed=seed,
            temperature=temperature * state.exploration_boost,
            probe=worker.quarantined,
        )
        self._emissions.append(Emission(request, key, row.cause))
        if met.draws:
            sampled = OpponentSampled(request_id=request_id, model=row.model, opponents=met.draws)
            self._emissions.append(Emission(sampled, key, row.cause))
        self.set_config(key, row.replace(**turn))
        self.set_worker(name, worker.replace(serving=(*worker.serving, key)))

    def _priority(self, state: FeedbackState) -> float:
        """Return a priority within [floor * 2, 2]: curriculum weight, staleness, uncertainty."""
        limits, last = self.settings.feedback.scheduler, state.last_training_time
        hours = 0.0 if last is None else (self._event.recordedtime - last).total_seconds() / SECONDS_PER_HOUR
        staleness = min(1.0, max(0.0, hours) / limits.staleness_hours)
        uncertainty = min(1.0, (state.elo_stderr or UNCERTAIN_ELO) / UNCERTAIN_ELO)
        priority = state.curriculum_weight * (1 + staleness) * (1 + uncertainty) / 2
        return min(HIGHEST, max(limits.starvation_floor * HIGHEST, priority))

    def step(self) -> Step[SchedulerRow]:
        """Return all changes."""
        changed: dict[str, SchedulerRow | None] = {
            CONFIG + key: SchedulerRow(config=row) for key, row in self._configs.items()
        }
        changed |= {WORKER + name: SchedulerRow(worker=row) for name, row in self._workers.items()}
        changed |= {name: SchedulerRow(page=page) if page else None for name, page in self._lines.pages.items()}
        queue = self.queue
        if queue.sizes is not self._lines.sizes:
            queue = queue.replace(sizes=self._lines.sizes)
        if queue is not self._before:
            changed[QUEUE] = SchedulerRow(queue=queue)
        return Step(changed, tuple(self._emissions))
