"""A participant whose work is to wait: what is left is the run's own load. sleeping_loop.py RUN."""

import random
import sys
import time
from hashlib import sha256
from typing import Any

import flyball

SECONDS = {"selfplay": 20.0, "training": 30.0, "evaluation": 10.0}


def answer(request: Any) -> dict[str, object]:
    """Return an answer of the request's own, by which every model seems a little better than its opponent."""
    name = sha256(request.id.encode()).hexdigest()
    match request.kind:
        case "selfplay":
            return {"shard": name, "rows": 20 * request["games"]}
        case "training":
            return {"model": name}
    rng = random.Random(request.id)
    return {"scores": [float(rng.random() < 0.55) for _ in range(request["games"])]}


if __name__ == "__main__":
    for request in flyball.participate(sys.argv[1], *SECONDS):
        with request:
            time.sleep(SECONDS[request.kind])
            request.succeed(**answer(request))
