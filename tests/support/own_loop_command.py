"""A command that does one task of own_loop.py, without Flyball: its argument is the task's folder."""

import json
import sys
from pathlib import Path

import own_loop


class Request(dict):
    def progress(self, epoch, epochs, **metrics):
        sys.stdout.write(json.dumps({"epoch": epoch, "epochs": epochs, **metrics}) + "\n")


folder = Path(sys.argv[1])
request = Request(json.loads((folder / "request.json").read_text()))
work = {"selfplay": own_loop.selfplay, "training": own_loop.train, "evaluation": own_loop.evaluate}
work["distribution"] = lambda request: {}
(folder / "result.json").write_text(json.dumps(work[request["kind"]](request)))
