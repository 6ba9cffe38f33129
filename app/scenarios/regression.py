"""regression: a bad model is promoted with the current one's rating.

It is the current model with reversed preferences. Participants have the models of backend ``external``, so there it is
the weakest earlier champion.
"""

import safetensors.numpy

from flyball.app.core import ModelHash
from flyball.app.events import (
    Evidence,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    RegressionDetected,
    RollbackRequested,
    SelfplayRequested,
)
from flyball.app.scenarios.plan import ConfigView, Expected, Plan, Scenario
from flyball.app.store import NETWORK, BlobStore, get_checkpoint, put_checkpoint

ENOUGH_ELO = 150.0
"""Least Elo of the current model. A weaker model may play no worse with reversed preferences."""

EXTERNAL_ELO = 200.0
"""Least lead over the weakest champion. A rating has an error of some 50 Elo, so the true lead may be smaller."""

POLICY_HEAD = "policy_head."
"""Prefix of the tensors that score actions, in our networks."""


def _lacks(view: ConfigView, store: BlobStore) -> str | None:
    promotion = view.promotion
    if promotion is None:
        return "has no current model yet"
    if view.settings.config(view.key).is_external:
        lead = promotion.elo - _weakest(view).elo
        enough = lead >= EXTERNAL_ELO
        return None if enough else f"has no champion {EXTERNAL_ELO:.0f} Elo weaker than its model: {lead:.0f} at most"
    if promotion.elo < ENOUGH_ELO:
        return f"has learned too little: its model has {promotion.elo:+.0f} Elo, and {ENOUGH_ELO:+.0f} are needed"
    if not store.has(promotion.model):
        return "has a current model that is not in the store"
    checkpoint = get_checkpoint(store, promotion.model)
    content = checkpoint.manifest.content
    if content != NETWORK:
        return f"has a {content} for a model, and only a network can be made to play badly"
    known_head = any(name.startswith(POLICY_HEAD) for name in safetensors.numpy.load(checkpoint.parameters))
    return None if known_head else f"has a network of its own, without tensors {POLICY_HEAD}* to reverse"


def _weakest(view: ConfigView) -> ModelPromoted:
    return min(view.promotions.values(), key=lambda promotion: promotion.elo)


def _plan(view: ConfigView, store: BlobStore) -> Plan:
    good = view.promotion
    assert good is not None  # see _lacks
    is_external = view.settings.config(view.key).is_external
    bad = _weakest(view).model if is_external else store_reversed(store, good.model)
    return Plan(
        key=view.key,
        trouble=_promotion(good, bad),
        expected=(
            Expected(
                "detected",
                RegressionDetected,
                lambda event, _: event.data.model == bad,
                "An adopted model is rated before anything else happens to it: do model_lifecycle, evaluation and "
                "feedback run? (flyball status) Few rating games (games.KEY.evaluation) may not be enough at once.",
            ),
            Expected(
                "decided",
                ModelRolledBack,
                lambda event, _: event.data.from_model == bad,
                "The severity may lie below feedback.lifecycle.rollback_at, or another model be current by now.",
            ),
            Expected(
                "recovered",
                ModelDistributed,
                lambda event, steps: event.data.model == steps[-1].data.to_model,
                "Does the distribution daemon run? (flyball status)",
            ),
            Expected(
                "recovered",
                SelfplayRequested,
                lambda event, steps: event.data.model == steps[-1].data.model,
                "All self-play workers may be busy with other configurations.",
            ),
        ),
        remains=f"{view.key} plays with the bad model until the watchdog notices and it is rolled back.",
        remedy=RollbackRequested(model=bad, reason="the regression scenario is over"),
    )


def store_reversed(store: BlobStore, model: ModelHash) -> ModelHash:
    """Store a successor of a model, with reversed preferences; return its hash.

    The successor has no optimiser state, because the store would remove that together with the model.
    """
    checkpoint = get_checkpoint(store, model)
    tensors = safetensors.numpy.load(checkpoint.parameters)
    turned = {name: -tensor if name.startswith(POLICY_HEAD) else tensor for name, tensor in tensors.items()}
    successor = {"step": checkpoint.manifest.step + 1, "parent": model}
    manifest = checkpoint.manifest.replace(**successor)
    return put_checkpoint(store, manifest, safetensors.numpy.save(turned), None)


def _promotion(good: ModelPromoted, bad: ModelHash) -> ModelPromoted:
    evidence = Evidence(
        evaluation_id=good.evidence.evaluation_id,
        statistic="an operator's word",
        value=0.0,
        threshold=0.0,
        games=0,
        elo=good.elo,
        elo_stderr=good.evidence.elo_stderr,
    )
    return ModelPromoted(model=bad, previous=good.model, step=good.step + 1, elo=good.elo, evidence=evidence)


SCENARIO = Scenario("regression", "a model that plays badly is made current", _lacks, _plan)
