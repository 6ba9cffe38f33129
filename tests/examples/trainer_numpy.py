"""A trainer in NumPy alone: actor-critic with a hand-written gradient.

In flyball.toml: ``train_command = ["python", "trainer_numpy.py"]``.
"""

import json
import sys
from pathlib import Path

import numpy as np

BATCH, ENTROPY = 256, 0.1


def gradients(weights, layers, obs, mask, action, played, advantage, target):
    """Return the loss's gradient by tensor, and the metrics of a batch."""
    hidden, rows = [obs], np.arange(len(obs))
    for name in layers:
        hidden.append(np.maximum(hidden[-1] @ weights[f"{name}.weight"].T + weights[f"{name}.bias"], 0))
    logits = hidden[-1] @ weights["policy_head.weight"].T + weights["policy_head.bias"]
    value = (hidden[-1] @ weights["value_head.weight"].T + weights["value_head.bias"])[:, 0]
    logits = np.where(mask, logits, -1e9)
    logits -= logits.max(axis=1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    probs = np.exp(log_probs)
    entropy = -(probs * log_probs).sum(axis=1)
    advantage = advantage * np.exp(np.minimum(log_probs[rows, action] - played, 0))  # what the policy left counts less
    policy_loss, value_loss = -(advantage * log_probs[rows, action]).mean(), ((value - target) ** 2).mean()

    by_logits = probs * advantage[:, None] + ENTROPY * probs * (log_probs + entropy[:, None])
    by_logits[rows, action] -= advantage
    heads = {"policy_head": by_logits / len(obs), "value_head": (value - target)[:, None] / len(obs)}
    grads = {f"{name}.weight": grad.T @ hidden[-1] for name, grad in heads.items()}
    grads |= {f"{name}.bias": grad.sum(axis=0) for name, grad in heads.items()}
    back = sum(grad @ weights[f"{name}.weight"] for name, grad in heads.items())
    for name, below, above in zip(layers[::-1], hidden[-2::-1], hidden[:0:-1], strict=True):
        back = back * (above > 0)
        grads |= {f"{name}.weight": back.T @ below, f"{name}.bias": back.sum(axis=0)}
        back = back @ weights[f"{name}.weight"]
    return grads, (policy_loss, value_loss, entropy.mean())


request = json.loads((Path(sys.argv[1]) / "request.json").read_text())
paths, epochs, rng = request["paths"], request["epochs"], np.random.default_rng(request["seed"])
weights, rows = dict(np.load(paths["base_npz"])), dict(np.load(paths["rows"]))
layers = [f"trunk.{number}" for number in range(len(request["network"]["hidden"]))]
target, advantage = rows["advantage"] + rows["value"], rows["advantage"] / (rows["advantage"].std() + 1e-8)
columns = rows["obs"].astype(np.float32), rows["mask"], rows["action"], rows["log_prob"], advantage, target
moments = {name: (np.zeros_like(tensor), np.zeros_like(tensor)) for name, tensor in weights.items()}
for epoch in range(1, epochs + 1):
    for batch in np.array_split(rng.permutation(request["rows"]), max(1, request["rows"] // BATCH)):
        grads, losses = gradients(weights, layers, *(column[batch] for column in columns))
        for name, grad in grads.items():  # RMSProp with momentum
            mean, square = moments[name] = 0.9 * moments[name][0] + 0.1 * grad, 0.99 * moments[name][1] + 0.01 * grad**2
            weights[name] -= (request["learning_rate"] * mean / (np.sqrt(square) + 1e-3)).astype(np.float32)
    metrics = dict(zip(("policy_loss", "value_loss", "entropy"), map(float, losses), strict=True))
    print(json.dumps({"epoch": epoch, "epochs": epochs, **metrics}), flush=True)
np.savez(paths["model_npz"], **weights)
Path(paths["result"]).write_text(json.dumps({"metrics": metrics}))
