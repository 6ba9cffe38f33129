"""A backend of one's own: self-play and networks are Flyball's, and a training uses the newest shards only."""

from dataclasses import replace

from app.backends import POLICY_GRADIENT
from app.learning import jobs


def train(spec, report):
    """Train as policy_gradient does, on as many of the newest shards as the options say."""
    newest = spec["config"]["options"].get("newest", 8)
    return jobs.train({**spec, "shards": spec["shards"][-newest:]}, report)


FRESH = replace(POLICY_GRADIENT, name="fresh", train="own_backend:train")
