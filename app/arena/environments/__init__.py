"""Policies in foreign environments: Gymnasium's, by their ids. Gymnasium is an extra and imported when it is used."""

from app.arena.environments.codecs import ACTION_CODECS, CodedPolicy, UnsuitedCodec
from app.arena.environments.evaluation import Environments, EpisodePlan, evaluate_episodes
from app.arena.environments.loading import GROUP, UnknownPolicy, fingerprint, load_policy
from app.arena.environments.mlp import PolicyManifest, policy_bytes
from app.arena.environments.policies import BadPolicy, EnvironmentPolicy, PolicyRequest
from app.arena.environments.vector import (
    BadEnvironment,
    GymnasiumEnvironments,
    MissingGymnasium,
    UnknownEnvironment,
    open_environments,
)

__all__ = [
    "ACTION_CODECS",
    "GROUP",
    "BadEnvironment",
    "BadPolicy",
    "CodedPolicy",
    "EnvironmentPolicy",
    "Environments",
    "EpisodePlan",
    "GymnasiumEnvironments",
    "MissingGymnasium",
    "PolicyManifest",
    "PolicyRequest",
    "UnknownEnvironment",
    "UnknownPolicy",
    "UnsuitedCodec",
    "evaluate_episodes",
    "fingerprint",
    "load_policy",
    "open_environments",
    "policy_bytes",
]
