"""A trainer in plain PyTorch: actor-critic with truncated importance weights.

In flyball.toml: ``trainer = "trainer_torch:train"``. The method is from Espeholt et al. (2018).
"""

import torch
from torch.nn.functional import log_softmax, mse_loss

from flyball import Training

BATCH, ENTROPY, MAX_NORM = 256, 0.1, 0.5


def train(spec, report):
    """Move the policy towards actions that did better than the critic expected."""
    training = Training(spec, report)
    rows, network = training.rows, training.network()
    generator = torch.Generator().manual_seed(training.seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=training.learning_rate)

    advantages = training.advantages(gamma=1.0, gae_lambda=0.9)
    scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    columns = rows.obs, rows.mask, rows.action, rows.log_prob, scaled, advantages + rows.value
    obs, mask, action, played, advantage, target = (torch.from_numpy(c).to(training.device) for c in columns)

    for epoch in range(1, training.epochs + 1):
        losses = []
        for batch in torch.randperm(len(rows), generator=generator).split(BATCH):
            logits, value = network(obs[batch].float())
            log_probs = log_softmax(logits.masked_fill(~mask[batch], -1e9), dim=1)
            entropy = -(log_probs.exp() * log_probs).sum(dim=1).mean()
            chosen = log_probs.gather(1, action[batch].long()[:, None])[:, 0]
            weight = (chosen - played[batch]).exp().clamp(max=1).detach()  # what the policy has left does not count
            policy_loss = -(weight * advantage[batch] * chosen).mean()
            value_loss = mse_loss(value, target[batch])
            optimizer.zero_grad()
            (policy_loss + 0.5 * value_loss - ENTROPY * entropy).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), MAX_NORM)
            optimizer.step()
            losses.append([policy_loss.item(), value_loss.item(), entropy.item()])
        means = torch.tensor(losses).mean(dim=0).tolist()
        metrics = dict(zip(("policy_loss", "value_loss", "entropy"), means, strict=True))
        training.progress(epoch, training.epochs, **metrics)

    if metrics["entropy"] < 1e-3:
        training.discard("the policy has collapsed")
    return training.finish(network.state_dict(), **metrics)
