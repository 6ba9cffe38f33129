"""A server of text by vLLM's form of the OpenAI protocol; with token ids, its tokenizer is never used."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from flyball.app.core import FlyballError
from flyball.app.language.generator import Ids, Sampling

OUTSTANDING = 64
"""Most requests that a process has under way; others wait in this process, where they cost the server nothing."""

_CONNECT_SECONDS, _READ_SECONDS = 5.0, 120.0
_NEUTRAL = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Neutral sampling values: without them, a server takes those in the base model's generation_config.json."""

_MOST_SEED = 1 << 63
_SAME = 1e-5  # nats between log-probabilities of one prompt, at most
_PLACES = 64  # places of a text in one request, at most
_MOST_TOKENS = 128  # whose log-probabilities vLLM returns for one place
_VERSION_HINT = "Is it a vLLM of the version that the page language.md names?"


class NoServer(FlyballError):
    """A server that is away, overloaded or failing now. The request may be repeated."""


class ServerRefused(FlyballError):
    """A request that a server refuses, however often it is repeated."""


class NotLoaded(ServerRefused):
    """A request for a model that a server does not have."""


class TextServer:
    """A server by its address. Thread-safe.

    Attributes:
        verified: adapters that passed their canary; emptied once the server was away, because it may have lost them.
        lock: held while an adapter is loaded and verified.
    """

    verified: set[str]
    _is_heated: bool  # log-probabilities are known to be those at the temperature

    def __init__(self, address: str) -> None:
        self.address = address
        self.lock = Lock()
        self._was_away()
        from httpx2 import Client, Limits, Timeout

        self._client = Client(
            base_url=address,
            timeout=Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
            limits=Limits(max_connections=OUTSTANDING, max_keepalive_connections=OUTSTANDING),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _was_away(self) -> None:
        """Forget what is known about the server. Another server may answer next at the same address."""
        self.verified, self._is_heated = set(), False

    def models(self) -> dict[str, str | None]:
        """Return the folders of the base model and the loaded adapters.

        Their names are the keys. Raises ``NoServer`` or ``ServerRefused``.
        """
        with self._expecting_vllm():
            return {str(model["id"]): model.get("root") for model in self._request("GET", "/v1/models").json()["data"]}

    def load(self, name: str, path: str) -> None:
        """Load an adapter. It is no error if another process was faster. Raises ``NoServer`` or ``ServerRefused``."""
        body = {"lora_name": name, "lora_path": path}
        try:
            self._request("POST", "/v1/load_lora_adapter", body, lasting=(404, 500), hint=_LOAD_HINT)
        except ServerRefused:
            if self.models().get(name) != path:
                raise

    def unload(self, name: str, path: str) -> None:
        """Unload an adapter if it was loaded from ``path``. Raises ``NoServer`` or ``ServerRefused``."""
        self.verified.discard(name)
        if self.models().get(name) == path:
            self._request("POST", "/v1/unload_lora_adapter", {"lora_name": name}, hint=_LOAD_HINT)

    def next_log_probs(self, model: str, ids: Ids, tokens: Ids) -> list[float]:
        """Return log-probabilities of ``tokens`` as the next one after ``ids``.

        They are at temperature 1 and among all tokens. Raises ``NoServer``, ``NotLoaded`` or ``ServerRefused``.
        """
        scores: list[float] = []
        for first in range(0, len(tokens), _MOST_TOKENS):
            part = tokens[first : first + _MOST_TOKENS]
            (by_token,) = self._next(model, [ids], part)
            scores += [by_token[token] for token in part]
        return scores

    def answer(self, model: str, ids: Ids, sampling: Sampling, seed: int, most: int) -> list[tuple[int, float]]:
        """Return a free answer's tokens and their log-probabilities, at most ``most``.

        Raises ``NoServer``, ``NotLoaded`` or ``ServerRefused``.
        """
        if sampling.temperature not in (0.0, 1.0):
            self._check_heat(model, ids)
        parameters: dict[str, Any] = {
            "temperature": sampling.temperature,
            "max_tokens": most,
            "stop": [sampling.stop],
            "include_stop_str_in_output": True,
            "ignore_eos": True,
            "logprobs": 0,
        }
        if sampling.temperature:
            parameters["seed"] = seed % _MOST_SEED
        with self._expecting_vllm():
            (choice,) = self._complete(model, [ids], parameters)
            return list(zip(choice["token_ids"], map(_number, choice["logprobs"]["token_logprobs"]), strict=True))

    def _check_heat(self, model: str, ids: Ids) -> None:
        """Check that log-probabilities follow the temperature, as those of draws do. Raises ``ServerRefused``."""
        if self._is_heated:
            return
        tokens = sorted({*ids})[:_MOST_TOKENS]
        cold, hot = (self._next(model, [ids], tokens, heat)[0] for heat in (1.0, 10.0))
        if all(abs(cold[token] - hot[token]) < _SAME for token in tokens):
            raise ServerRefused(
                f"The server {self.address} returns log-probabilities at temperature 1 for answers at another one.",
                hint="Start it with --logprobs-mode processed_logprobs, or draw free answers at temperature 1.",
            )
        self._is_heated = True

    def score(self, texts: Sequence[Ids], adapter: str, last: int | None = None) -> list[list[float]]:
        """Return log-probabilities of each text's tokens but the first.

        ``last`` limits them to each text's last tokens. They are requested as decoding requests them, so they show what
        a server's prefix cache holds. ``prompt_logprobs`` would not, and ends vLLM's engine on CPUs if another request
        is in the batch.

        Raises ``NoServer``, ``NotLoaded`` or ``ServerRefused``.
        """
        return [self._score_part(adapter, text, 1 if last is None else max(1, len(text) - last)) for text in texts]

    def _score_part(self, model: str, ids: Ids, first: int) -> list[float]:
        scores: list[float] = []
        for begin in range(first, len(ids), _PLACES):
            indices = range(begin, min(begin + _PLACES, len(ids)))
            tokens = sorted({ids[index] for index in indices})
            next_scores = self._next(model, [ids[:index] for index in indices], tokens)
            scores += [at[ids[index]] for at, index in zip(next_scores, indices, strict=True)]
        return scores

    def _next(self, model: str, prompts: Sequence[Ids], tokens: Ids, heat: float = 1.0) -> list[dict[int, float]]:
        """Return log-probabilities of ``tokens`` as next ones after each prompt."""
        parameters = {"temperature": heat, "max_tokens": 1, "logprobs": 0, "logprob_token_ids": list(tokens)}
        with self._expecting_vllm():
            scores = [choice["logprobs"]["top_logprobs"][0] for choice in self._complete(model, prompts, parameters)]
            return [{token: _number(score[f"token_id:{token}"]) for token in tokens} for score in scores]

    def _complete(self, model: str, prompts: Sequence[Ids], parameters: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the choices of a completion, one for each prompt."""
        body = {
            "model": model,
            "prompt": [list(ids) for ids in prompts],
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        choices = self._request("POST", "/v1/completions", body | _NEUTRAL | parameters).json()["choices"]
        return sorted(choices, key=lambda choice: int(choice["index"]))

    @contextmanager
    def _expecting_vllm(self) -> Iterator[None]:
        """Turn errors about an unexpected form of answer into ``ServerRefused``."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ServerRefused(
                f"The server {self.address} answers unlike vLLM: {type(error).__name__}: {error}.", hint=_VERSION_HINT
            ) from error

    def _request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        lasting: tuple[int, ...] = (),
        hint: str = _VERSION_HINT,
    ) -> Any:
        """Return a server's answer.

        ``lasting`` statuses raise ``ServerRefused``. Other 5xx and 429 raise ``NoServer``, because they may pass. Other
        404 raise ``NotLoaded``, and the rest ``ServerRefused``.
        """
        from httpx2 import TransportError

        try:
            response = self._client.request(method, path, json=body)
        except TransportError as error:
            self._was_away()
            raise NoServer(
                f"The server {self.address} does not answer: {type(error).__name__}: {error}.",
                hint="Start it again; its adapters are loaded and checked again by themselves.",
            ) from error
        status = response.status_code
        if status == 200:
            return response
        failure = f"The server {self.address} answered {path} with {status}: {response.text[:500]!r}."
        if status in lasting:
            raise ServerRefused(failure, hint=hint)
        if status == 429 or status >= 500:
            self._was_away()
            raise NoServer(failure, hint="Read the server's log.")
        if "not JSON compliant" in response.text:
            hint = "It computes NaN, which stay in its cache: start it again."
        raise (NotLoaded if status == 404 else ServerRefused)(failure, hint=hint)


_LOAD_HINT = (
    "It has to be started with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, --enable-lora and a --max-lora-rank of at least "
    "the adapter's rank, and to read the adapter's folder at the same path: see deployment.text.adapters."
)


def _number(value: float | None) -> float:
    """Return a log-probability; JSON may hold null for NaN."""
    return float("nan") if value is None else float(value)
