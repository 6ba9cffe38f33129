"""Checks of configurations: whether each learns, and what it waits for."""

import json
from collections import Counter
from collections.abc import Iterator

from flyball.app.config import RunSettings
from flyball.app.controllers.watchdog import fixed_opponent
from flyball.app.core import SECOND_US
from flyball.app.doctor.diagnosis import Symptom
from flyball.app.doctor.facts import Facts
from flyball.app.doctor.machine import LATELY
from flyball.app.events import ModelRolledBack
from flyball.app.events.envelope import EPOCH
from flyball.app.status.configs import EVALUATION, TRAINING, ConfigRow
from flyball.app.status.obstacles import MANY_FAILURES, on_one_line
from flyball.app.status.summary import short

PAUSED_SHARDS = 3
"""Shards during a pause of training at which it is reported.

Each shard could have ended the pause by its quality, and few shards are played during a pause.
"""

SPARE = 2.0
"""Multiple of the most rows that a training can need. It allows for shards that come late."""

GATE_HOURS = 2.0
"""Longest time between two events about a candidate's gate.

A round takes minutes, a pause after failures five minutes.
"""

ROLLBACKS = 3
"""Rollbacks of a configuration within an hour that make a livelock."""


def training_blocked(facts: Facts) -> Iterator[Symptom]:
    """Find configurations whose training is blocked."""
    for row in facts.configs.values():
        if row.blocked is not None:
            hint = (
                "Find the cause first: flyball tail -n 5 'PARITY_*' --config-key "
                f'{row.key}. Lift it: flyball emit TRAINING_UNBLOCKED \'{{"reason": "WHY"}}\' --config-key {row.key}'
            )
            yield Symptom("warning", row.key, f"Training is blocked: {row.blocked}.", hint)


def livelock(facts: Facts) -> Iterator[Symptom]:
    """Find configurations that work without getting anywhere."""
    rolled_back = Counter(
        event.subject
        for event in facts.recent
        if isinstance(event.data, ModelRolledBack) and facts.now - event.recordedtime < LATELY
    )
    if facts.run is None:
        return
    for row in facts.configs.values():
        if row.blocked is None and (symptom := _without_training(row, facts.run)):
            yield symptom
        if rolled_back[row.key] >= ROLLBACKS:
            feedback, temperature = facts.run.feedback, facts.run.config(row.key).evaluation.temperature
            yield Symptom(
                "warning",
                row.key,
                f"{rolled_back[row.key]} models were promoted and rolled back within an hour.",
                f"Ask for more evidence: raise feedback.lifecycle.elo0 = {feedback.lifecycle.elo0:g} or "
                f"feedback.watchdog.threshold = {feedback.watchdog.threshold:g}. If games.{row.key}.evaluation."
                f"temperature = {temperature:g} was changed during the run, set it back.",
            )


def _without_training(row: ConfigRow, run: RunSettings) -> Symptom | None:
    """Return a symptom if games are played, but training uses none."""
    untrained, feedback = row.untrained, run.feedback
    if row.paused and untrained.shards >= PAUSED_SHARDS:
        quality = "unknown" if row.quality is None else f"{row.quality:.2f}"
        return Symptom(
            "warning",
            row.key,
            f"{untrained.shards} shards were played while training is paused: the quality {quality} of the data is "
            f"below feedback.intensity.reduced = {feedback.intensity.reduced:g}.",
            "If the data is as good as it can be, lower that setting, and min_quality = "
            f"{run.min_quality:g} to at most as much; otherwise look at what is wrong with the games: "
            f"flyball tail -n 3 QUALITY_SCORE_UPDATED --json --config-key {row.key}",
        )
    most = max(getattr(feedback.trigger, name) for name in ("hot_path", "accelerated", "normal", "reduced"))
    needed = run.config(row.key).rows_per_training * most * feedback.gauntlet.max_games_factor
    if row.paused or row.lineage.busy or row.lineage.playing is None or untrained.rows <= SPARE * needed:
        return None
    return Symptom(
        "warning",
        row.key,
        f"{untrained.rows:,} rows were played since training had its chance, and {needed:,.0f} always suffice: most "
        "shards are unfit to train on.",
        f"Compare their scores with min_quality = {run.min_quality:g}, and lower that if the data is as good as it can "
        f"be: flyball tail -n 5 'QUALITY_*' --config-key {row.key}",
    )


def training_failing(facts: Facts) -> Iterator[Symptom]:
    """Find trainings that fail in a row."""
    for row in facts.configs.values():
        failing = row.failing.get(TRAINING)
        if failing and failing.times >= MANY_FAILURES:
            how = "diverged" if row.diverged >= MANY_FAILURES else "failed"
            hint = f"Failures: flyball tail -n 3 TRAINING_FAILED --config-key {row.key}; traceback: logs/training.jsonl"
            yield Symptom(
                "critical",
                row.key,
                f"Training {how} {failing.times} times in a row: {on_one_line(failing.error)}.",
                hint,
            )


def evaluation_overdue(facts: Facts) -> Iterator[Symptom]:
    """Find configurations whose evaluations fail or do not come."""
    for row in facts.configs.values():
        failing = row.failing.get(EVALUATION)
        hint = f"Failures: flyball tail -n 3 EVALUATION_FAILED --config-key {row.key}; logs/evaluation.jsonl"
        if failing and failing.times >= MANY_FAILURES:
            yield Symptom(
                "critical",
                row.key,
                f"Evaluation failed {failing.times} times in a row: {on_one_line(failing.error)}.",
                hint,
            )
        elif row.overdue is not None:
            yield Symptom("warning", row.key, f"No evaluation came for {row.overdue.hours:.1f} h.", hint)


def gate_unplayed(facts: Facts) -> Iterator[Symptom]:
    """Find rated candidates whose gate is neither requested nor played."""
    for row in facts.configs.values():
        candidate, since_us = row.lineage.candidate, row.tested_us
        if candidate is None or row.evaluated != candidate or row.overdue or since_us is None or not facts.recorded:
            continue
        # In recorded time, which does not advance while the run is stopped. It jumps after a long stop, and the gate is
        # found until it is asked for or played again.
        hours = (facts.recorded - EPOCH).total_seconds() / 3600 - since_us / SECOND_US / 3600
        if hours >= GATE_HOURS:
            request = {"purpose": "gate", "model": candidate, "step": row.step, "seed": 1}
            yield Symptom(
                "warning",
                row.key,
                f"Candidate {short(candidate)} is rated, and for {hours:.1f} h no games for its promotion were asked "
                "for or played.",
                "Look at model_lifecycle and evaluation: flyball status. Ask by hand: "
                f"flyball emit EVALUATION_REQUESTED '{json.dumps(request)}' --config-key {row.key}",
            )


def gate_undecided(facts: Facts) -> Iterator[Symptom]:
    """Find configurations whose gates include games that no player decided, or only games that repeat each other."""
    for row in facts.configs.values():
        if row.alike:
            yield Symptom(
                "notice",
                row.key,
                "All games of the latest gate end alike, so that no difference between candidate and champion can be "
                "shown.",
                "The game may be solved: then nothing is left to learn. Otherwise let games differ: raise "
                f"games.{row.key}.evaluation.temperature or games.{row.key}.evaluation.opening_plies.",
            )
        if row.undecided:
            yield Symptom(
                "warning",
                row.key,
                f"In {row.undecided:.0%} of the latest gate's games no player had a decision to make, so that chance "
                "alone decides promotions there.",
                f"The game ends, or leaves one legal action, before any choice: flyball check game {row.key}",
            )


def regression(facts: Facts) -> Iterator[Symptom]:
    """Find current models that play worse than earlier ones."""
    rollback_at = facts.run.feedback.lifecycle.rollback_at if facts.run else "severe"
    for row in facts.configs.values():
        if (event := row.regression) is None:
            continue
        good = f", {short(event.last_good)} was better" if event.last_good else ""
        yield Symptom(
            "critical" if event.severity in ("severe", "critical") else "warning",
            row.key,
            f"Its current model {short(event.model)} is {event.elo_drop:.0f} Elo weaker than before against "
            f"{fixed_opponent(event)} ({event.severity}, {event.games} games{good}).",
            f"At {rollback_at} or worse it is rolled back by itself. What led to it: "
            f"flyball tail -n 3 REGRESSION_DETECTED --config-key {row.key}",
        )


def distribution_failing(facts: Facts) -> Iterator[Symptom]:
    """Find current models that do not reach the nodes that play them."""
    for row in facts.configs.values():
        if (failed := row.undistributed) is not None:
            error = on_one_line(failed.error)
            what = f"Model {short(failed.model)} cannot be distributed (attempt {failed.attempt}): {error}."
            yield Symptom("critical", row.key, what, "It is tried again. Look at the store: flyball store verify")
    for config in facts.status.configs if facts.status else ():
        if config.late:
            what = f"Model {short(config.model)} has not reached {', '.join(config.late)}."
            hint = "Jobs there fetch it when they need it. Look at logs/distribution.jsonl on these nodes."
            yield Symptom("warning", config.key, what, hint)
