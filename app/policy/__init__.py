"""Networks: initialisation, inference, and parameters as bytes."""

from app.policy.device import UnknownDevice, missing_device, use_one_thread
from app.policy.inference import NoLegalAction, Policy, init_policy, load_network
from app.policy.layers import linear
from app.policy.network import MASKED_LOGIT, ActorCritic, masked_log_probs
from app.policy.parameters import BadParameters, Parameters, bytes_to_parameters, parameters_to_bytes

__all__ = [
    "MASKED_LOGIT",
    "ActorCritic",
    "BadParameters",
    "NoLegalAction",
    "Parameters",
    "Policy",
    "UnknownDevice",
    "bytes_to_parameters",
    "init_policy",
    "linear",
    "load_network",
    "masked_log_probs",
    "missing_device",
    "parameters_to_bytes",
    "use_one_thread",
]
