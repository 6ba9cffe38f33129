"""A server on this machine with vLLM's protocol and vLLM's faults.

It answers from PEFT, and covers the requests of the generator. PEFT, whose import takes seconds, is imported when it is
needed, because each worker imports all files of tests.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import load_file

from flyball.app.language.base_model import BaseModel
from flyball.app.language.peft_generator import PeftGenerator

Json = dict[str, Any]


class FakeTextServer:
    """A server of the part of the protocol that Flyball uses.

    Attributes:
        failures: statuses of the next answers to completions; each is used once.
        stale: adapters that answer requests for others, by name, as from a cache that was not emptied.
        is_raw: log-probabilities are those at temperature 1, as without --logprobs-mode processed_logprobs.
        asked: the bodies of completions.
    """

    def __init__(self, base: BaseModel, port: int = 0) -> None:
        self.base, self.generator = base, PeftGenerator(base)
        self.roots: dict[str, str] = {}
        self.failures: list[int] = []
        self.stale: dict[str, str] = {}
        self.is_raw = self.is_closed = False
        self.asked: list[Json] = []
        self.most_under_way, self._under_way = 0, 0
        self._lock, self._count = threading.Lock(), threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._http.daemon_threads = True
        self.port = self._http.server_port
        self.address = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self.is_closed = True
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, path: str, body: Json) -> tuple[int, Any]:
        with self._count:
            self._under_way += 1
            self.most_under_way = max(self.most_under_way, self._under_way)
        try:
            with self._lock, torch.inference_mode():
                match path:
                    case "/v1/models":
                        return 200, self._models()
                    case "/v1/load_lora_adapter":
                        return self._load(body["lora_name"], Path(body["lora_path"]))
                    case "/v1/unload_lora_adapter":
                        return self._unload(body["lora_name"])
                    case "/v1/completions":
                        return self._complete(body)
                return 404, {"detail": "Not Found"}
        finally:
            with self._count:
                self._under_way -= 1

    def _models(self) -> Json:
        rows = [{"id": self.base.fingerprint, "root": "base"}]
        return {"data": rows + [{"id": name, "root": root} for name, root in self.roots.items()]}

    def _load(self, name: str, path: Path) -> tuple[int, Any]:
        if name in self.roots:
            return 400, f"{name} has already been loaded"
        if not path.is_dir():
            return 404, f"no adapter found for {name}"
        from peft import LoraConfig, set_peft_model_state_dict

        config = json.loads((path / "adapter_config.json").read_text())
        lora = LoraConfig(r=config["r"], lora_alpha=config["lora_alpha"], target_modules=config["target_modules"])
        self.generator.peft.add_adapter(name, lora)
        set_peft_model_state_dict(self.generator.peft, load_file(path / "adapter_model.safetensors"), adapter_name=name)
        self.generator.peft.eval()
        self.roots[name] = str(path)
        return 200, "added"

    def _unload(self, name: str) -> tuple[int, Any]:
        if name not in self.roots:
            return 404, "not found"
        del self.roots[name]
        self.generator.drop(name)
        return 200, "removed"

    def _complete(self, body: Json) -> tuple[int, Any]:
        self.asked.append(body)
        if self.failures:
            return self.failures.pop(0), "a planted failure"
        name = body["model"]
        if name not in {*self.roots, self.base.fingerprint}:
            return 404, f"The model `{name}` does not exist."
        name = self.stale.get(name, name)
        with self.generator.active(None if name == self.base.fingerprint else name) as model:
            choices = [self._choice(model, body, ids) | {"index": k} for k, ids in enumerate(body["prompt"])]
            return 200, {"choices": choices[::-1]}

    def _choice(self, model: Any, body: Json, ids: list[int]) -> Json:
        if wanted := body.get("logprob_token_ids"):
            assert len(wanted) <= 128
            heat = 1.0 if self.is_raw else body["temperature"]
            found = (model(input_ids=torch.tensor([ids])).logits[0, -1] / heat).log_softmax(-1).tolist()
            return {"logprobs": {"top_logprobs": [{f"token_id:{token}": found[token] for token in wanted}]}}
        rng, drawn, scores = np.random.default_rng(body.get("seed")), [], []
        while len(drawn) < body["max_tokens"] and not any(
            stop in self.base.decode(drawn) for stop in body.get("stop", ())
        ):
            last = model(input_ids=torch.tensor([ids + drawn])).logits[0, -1].double()
            found = (last / (body["temperature"] or 1.0)).log_softmax(-1)
            token = int(rng.choice(len(found), p=found.exp().numpy())) if body["temperature"] else int(found.argmax())
            drawn.append(token)
            scores.append(float(found[token]))
        return {"token_ids": drawn, "logprobs": {"token_logprobs": scores}}


def _handler(server: FakeTextServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Json) -> None:
            if server.is_closed:  # a connection made before the server closed
                self.close_connection = True
                return
            status, found = server.answer(self.path, body)
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler
