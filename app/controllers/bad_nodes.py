"""Quarantine of workers whose shards are worse than other workers' (ADR-010).

A worker is compared with others on the same configuration, because a fault that all of them show is the
configuration's. A worker is put into quarantine

- at its first shard whose games break the rules, unless more than half of the workers with recent shards of the
  configuration break them;
- after ``bad_shards`` consecutive shards, each scoring far below every shard that others delivered in the same time.

A quarantined worker plays probes. Consecutive good probes end the quarantine, a bad one makes it longer. A probe is
compared only with shards that others delivered since the quarantine began or grew. Without such shards it counts as
good, because otherwise a run's last worker would stay in quarantine for ever.
"""

from collections.abc import Callable

from flyball.app.config.feedback import NodeSettings
from flyball.app.controllers.controller import setting
from flyball.app.core import ConfigKey, backoff
from flyball.app.events import NodeQuarantined, NodeReleased, Payload, Row

LATEST = 12
"""Latest shards remembered for each configuration."""


class Delivered(Row, frozen=True):
    """A delivered shard, inspected at ``at_us``. ``score`` is ``None`` if its games break the rules."""

    worker: str
    at_us: int
    score: float | None


class NodeRow(Row, frozen=True):
    """The quarantine state of one worker.

    Attributes:
        times_us: times of its latest ``bad_shards`` inspections, or of a change of its quarantine.
        bad: number of its consecutive shards that scored far below all others'.
        quarantines: number of consecutive quarantines, which sets their length; 0: not in quarantine.
        good_probes: number of consecutive good probes.
        broken: the configuration whose rules its games broke, if that began the quarantine.
    """

    times_us: tuple[int, ...] = ()
    bad: int = 0
    quarantines: int = 0
    good_probes: int = 0
    broken: ConfigKey | None = None


class NodeWatch:
    """Judges the workers of a configuration's shards at one event.

    Args:
        settings: the thresholds.
        key: the configuration.
        delivered: its latest shards, oldest first.
        load: returns a worker's row.
        now_us: when the event was recorded.
    """

    def __init__(
        self,
        settings: NodeSettings,
        key: str,
        delivered: tuple[Delivered, ...],
        load: Callable[[str], NodeRow],
        now_us: int,
    ) -> None:
        self._settings, self._key, self._load, self._now_us = settings, ConfigKey(key), load, now_us
        self.delivered = delivered
        self.changed: dict[str, NodeRow] = {}
        self.payloads: list[Payload] = []

    def node(self, worker: str) -> NodeRow:
        """Return a worker's row."""
        return self.changed.get(worker) or self._load(worker)

    def score(self, worker: str, score: float) -> None:
        """Take in a shard whose games follow the rules."""
        node, most = self.node(worker), self._settings.bad_shards
        if node.quarantines:  # the shard was played before the quarantine
            return
        far_below = self._is_far_below(worker, score)
        bad = node.bad if far_below is None else node.bad + 1 if far_below else 0
        times_us = (*node.times_us, self._now_us)[-most:]
        self.changed[worker] = node.replace(times_us=times_us, bad=bad)
        self._remember(worker, score)
        if bad >= most:
            rule = setting("feedback.nodes.bad_shards", most)
            reason = f"{bad} consecutive shards scored {self._settings.far_below:g} below all others' or worse {rule}"
            self._quarantine(worker, reason)

    def judge_broken(self, worker: str | None, games: str) -> str | None:
        """Take in a shard whose games break the rules.

        Args:
            worker: its worker; ``None``: unknown.
            games: how many of its games break them, in words.

        Returns:
            Why training must stop; ``None`` if only the worker is at fault.
        """
        if worker is None:
            return f"{games} differ from the rules, and nobody knows whose they are"
        if self.node(worker).quarantines:  # the shard was played before the quarantine
            return None
        self._remember(worker, None)
        is_right = {shard.worker: shard.score is not None for shard in self.delivered}
        workers, right = len(is_right), sum(is_right.values())
        if right == 0:
            return f"{games} differ from the rules, and no other worker's games show that the rules are as before"
        if 2 * right < workers:
            return f"{games} differ from the rules, as do the latest of {workers - right} of {workers} workers"
        self.changed[worker] = self.node(worker).replace(broken=self._key)
        others = "another worker's" if right == 1 else f"{right} other workers'"
        reason = f"{games} of {self._key} differ from the rules, and {others} follow them, so only this worker stops"
        self._quarantine(worker, reason)
        return None

    def probe(self, worker: str, score: float | None) -> None:
        """Take in a shard that a quarantined worker played as a probe."""
        node = self.node(worker)
        if not node.quarantines:
            return
        if score is None or self._is_far_below(worker, score):
            self._quarantine(worker, "a probe is bad")
        elif node.good_probes + 1 < self._settings.good_probes:
            self.changed[worker] = node.replace(good_probes=node.good_probes + 1)
        else:
            rule = setting("feedback.nodes.good_probes", self._settings.good_probes)
            self.release(worker, f"{node.good_probes + 1} consecutive probes are good {rule}")

    def release(self, worker: str, reason: str) -> None:
        """End a quarantine."""
        self.changed[worker] = NodeRow(times_us=(self._now_us,))
        self.payloads.append(NodeReleased(worker=worker, reason=reason))

    def _quarantine(self, worker: str, reason: str) -> None:
        """Begin a quarantine, or make it longer."""
        node, settings = self.node(worker), self._settings
        lasts = backoff(settings.quarantine_seconds, settings.longest_quarantine_seconds, node.quarantines)
        begun = {"times_us": (self._now_us,), "bad": 0, "good_probes": 0, "quarantines": node.quarantines + 1}
        self.changed[worker] = node.replace(**begun)
        self.payloads.append(NodeQuarantined(worker=worker, lasts_seconds=lasts, reason=reason))

    def _is_far_below(self, worker: str, score: float) -> bool | None:
        """Return whether a score is far below all recent scores of other workers; ``None`` without such scores."""
        times_us = self.node(worker).times_us
        since_us = times_us[0] if times_us else 0
        others = [
            shard.score
            for shard in self.delivered
            if shard.worker != worker
            and shard.score is not None
            and shard.at_us >= since_us
            and not self.node(shard.worker).quarantines
        ]
        return score < min(others) - self._settings.far_below if others else None

    def _remember(self, worker: str, score: float | None) -> None:
        shard = Delivered(worker=worker, at_us=self._now_us, score=score)
        self.delivered = (*self.delivered, shard)[-LATEST:]
