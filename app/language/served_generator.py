"""Generation by vLLM servers, which load adapters from a shared folder.

Constrained answers are decoded in this process: servers give the log-probabilities of the allowed tokens, one place
after the other, and their prefix caches make that cheap. So masks, draws and log-probabilities are those of
``PeftGenerator``. A server's own structured outputs would be renormalised in a way that training cannot repeat.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import TypeVar

import structlog
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from flyball.app.config import TextServers
from flyball.app.core import ModelHash, backoff
from flyball.app.language.adapter_folder import AdapterFolder
from flyball.app.language.base_model import Vocabulary
from flyball.app.language.decoding import AnswerRow, draw
from flyball.app.language.generator import (
    Adapter,
    Completion,
    Generator,
    Ids,
    ModelMismatch,
    PromptRequest,
    Sampling,
    Scorer,
    UnknownAdapter,
    adapter_name,
    check_canary,
)
from flyball.app.language.peft_generator import check_content
from flyball.app.language.text_server import OUTSTANDING, NoServer, NotLoaded, ServerRefused, TextServer
from flyball.app.language.trie import Tries
from flyball.app.store.blobs import key_of

PATIENCE_SECONDS = 300.0
"""Longest wait for a server: vLLM starts within half a minute with a small model, but takes minutes with large ones."""

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.1, 5.0

_END = 32  # tokens of a canary's text that are compared
_RANK = 1  # of the adapter that answers as the base model

T = TypeVar("T")
U = TypeVar("U")


class ServedGenerator(Generator):
    """See ``Generator``. Not thread-safe.

    Any server answers any request. A server that is away is skipped until the next adapter is loaded, unless all are
    away. A server answers by an adapter only after it has passed the adapter's canary, and passes it again after it was
    away.

    Args:
        vocabulary: of the base model, which servers announce as a model named by its fingerprint.
        servers: addresses of servers, and the folder for adapters.
        base: folder or name of the base model.
        patience_seconds: time after which a request to servers that are away is not repeated.
    """

    def __init__(
        self, vocabulary: Vocabulary, servers: TextServers, base: str, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._vocabulary, self._base, self._patience = vocabulary, base, patience_seconds
        self._folder = AdapterFolder(Path(servers.folder), base)
        self._servers = [TextServer(address) for address in servers.addresses]
        self._answering: list[TextServer] = []  # the servers that answered when an adapter was loaded last
        self._serving: list[TextServer] = []  # the answering servers that have not been away since
        self._loaded: dict[str, Adapter] = {}
        self._zero_adapter: Adapter | None = None
        self._waiting_logged = False  # since a server answered last
        self._tries = Tries(vocabulary)
        self._folder.remove_unused(self._unload_everywhere)

    @property
    def fingerprint(self) -> str:
        """See ``Generator.fingerprint``."""
        return self._vocabulary.fingerprint

    @property
    def loaded(self) -> tuple[str, ...]:
        """See ``Generator.loaded``."""
        return tuple(self._loaded)

    def close(self) -> None:
        """See ``Generator.close``. Adapters stay loaded until another generator finds them unused."""
        self._folder.close()
        for server in self._servers:
            server.close()

    def load(self, adapter: Adapter) -> None:
        """See ``Generator.load``.

        The canary is checked on each server that answers. If the adapter is loaded already, servers are asked whether
        they still have it. Raises ``NoServer`` or ``ServerRefused``, too.
        """
        if adapter.name not in self._loaded:
            check_content(adapter, self.fingerprint)
            self._folder.take(adapter)
        self._loaded[adapter.name] = self._loaded.pop(adapter.name, adapter)  # the latest now
        try:
            self._with_retries(lambda _: self._load_on_all(adapter))
        except BaseException:
            self.unload(adapter.name)
            raise

    def unload(self, name: str) -> None:
        """See ``Generator.unload``. Servers keep an adapter as long as another process uses it."""
        if self._loaded.pop(name, None) is None:
            raise UnknownAdapter(name, self.loaded)
        self._folder.release(name)
        self._folder.remove_unused(self._unload_everywhere)

    def generate(self, requests: Sequence[PromptRequest], sampling: Sampling) -> list[Completion]:
        """See ``Generator.generate``. Raises ``NoServer`` or ``ServerRefused``, too."""
        adapters = {name: self._adapter(name) for name in dict.fromkeys(request.adapter for request in requests)}
        rows = [AnswerRow(self._vocabulary.encode(request.prompt), request, self._tries) for request in requests]
        self._map(lambda number, row: self._decode(number, row, adapters[row.request.adapter], sampling), rows)
        return [row.completion() for row in rows]

    def score(self, texts: Sequence[Ids], adapter: str | None) -> list[list[float]]:
        """See ``Generator.score``. Raises ``NoServer`` or ``ServerRefused``, too."""
        loaded = self._adapter(adapter)

        def scored(number: int, text: Ids) -> list[float]:
            return self._ask(number, loaded, lambda server: server.score([text], loaded.name)[0])

        return self._map(scored, texts)

    def _decode(self, number: int, row: AnswerRow, adapter: Adapter, sampling: Sampling) -> None:
        """Decode an answer."""
        while row.finish is None:
            if row.request.answers is None:
                self._continue_freely(number, row, adapter, sampling)
                continue
            legal = sorted(row.legal)
            question = partial(TextServer.next_log_probs, model=adapter.name, ids=[*row.prompt, *row.ids], tokens=legal)
            scores = self._ask(number, adapter, question)
            ((column, log_prob),) = draw(torch.tensor([scores]), [row], sampling)
            row.take(legal[column], log_prob, self._vocabulary.decode, sampling)

    def _continue_freely(self, number: int, row: AnswerRow, adapter: Adapter, sampling: Sampling) -> None:
        """Append a server's tokens, which may end before the stop if it decodes their text differently."""
        ids, seed = [*row.prompt, *row.ids], row.request.seed + len(row.ids)
        most = sampling.most_tokens - len(row.ids)
        tokens = self._ask(number, adapter, lambda server: server.answer(adapter.name, ids, sampling, seed, most))
        if not tokens:
            raise ServerRefused("A server answered with no token.", hint="Is it a vLLM?")
        for token, log_prob in tokens:
            row.take(token, log_prob, self._vocabulary.decode, sampling)
            if row.finish is not None:
                break

    def _adapter(self, name: str | None) -> Adapter:
        """Return a loaded adapter, or a zero adapter for the base model.

        The zero adapter answers as the base model does. The base model is never requested by its own name: in a batch
        with as many adapters as a server has slots, vLLM answers such requests by one of the adapters. Raises
        ``UnknownAdapter``.
        """
        if name is not None:
            if name not in self._loaded:
                raise UnknownAdapter(name, self.loaded)
            return self._loaded[name]
        if self._zero_adapter is None:
            if not self._loaded:
                raise UnknownAdapter("that answers as the base model", self.loaded)
            self._zero_adapter = _zero_adapter(next(iter(self._loaded.values())))
            self._folder.take(self._zero_adapter)
        return self._zero_adapter

    def _ask(self, number: int, adapter: Adapter, question: Callable[[TextServer], T]) -> T:
        """Return a server's answer about an adapter. The adapter is loaded again if the server has lost it."""

        def attempt_once(attempt: int) -> T:
            serving = self._serving
            server = serving[(number + attempt) % len(serving)]
            try:
                self._verify(server, adapter)
                try:
                    return question(server)
                except NotLoaded:
                    server.verified.discard(adapter.name)
                    self._verify(server, adapter)
                    return question(server)
            except NoServer:  # skip it, because otherwise each token of each answer would wait for it
                self._serving = [other for other in self._serving if other is not server] or self._answering
                raise

        return self._with_retries(attempt_once)

    def _load_on_all(self, adapter: Adapter) -> None:
        """Load an adapter on every server that answers. Raises ``NoServer`` if none does, or ``ModelMismatch``."""
        serving, away = [], None
        for server in self._servers:
            try:
                names = server.models()
                if self.fingerprint in names:
                    if adapter.name not in names:
                        server.verified.discard(adapter.name)
                    self._verify(server, adapter)
                    serving.append(server)
            except NoServer as error:
                away = error
        if serving:
            self._answering = self._serving = serving
        elif away is not None:
            raise NoServer(away.message, hint=self._start_hint)
        else:
            raise ModelMismatch(
                f"MODEL_MISMATCH: no server of deployment.text.servers serves base model {self.fingerprint}.",
                hint=self._start_hint,
            )

    @property
    def _start_hint(self) -> str:
        return (
            "Start one with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment: python -m "
            f"vllm.entrypoints.openai.api_server --model {self._base} --served-model-name {self.fingerprint} "
            "--enable-lora, and the options of the page language.md."
        )

    def _verify(self, server: TextServer, adapter: Adapter) -> None:
        """Load an adapter unless the server has it, and check its canary.

        The canary is checked once for each start of the server. Raises ``ModelMismatch``; an adapter that failed its
        canary is then unloaded.
        """
        verified = server.verified
        with server.lock:
            if server.verified is not verified:  # otherwise requests that waited here would wait for it in turn
                raise NoServer(f"The server {server.address} was away.", hint="Read the server's log.")
            if adapter.name in verified:
                return
            names, path = server.models(), self._path(adapter.name)
            if self.fingerprint not in names:
                raise ModelMismatch(
                    f"MODEL_MISMATCH: {server.address} serves no base model {self.fingerprint}.", hint=self._start_hint
                )
            if adapter.name not in names:
                server.load(adapter.name, path)
            elif names[adapter.name] != path:
                raise ModelMismatch(
                    f"MODEL_MISMATCH: {server.address} loaded {adapter.name} out of {names[adapter.name]}, not {path}.",
                    hint="Unload it there, or set one deployment.text.adapters for all runs that share the server.",
                )
            if adapter is not self._zero_adapter:
                try:
                    check_canary(_Ends(server), adapter)
                except ModelMismatch:
                    server.unload(adapter.name, path)
                    raise
            verified.add(adapter.name)  # without effect if another request found the server away meanwhile

    def _path(self, name: str) -> str:
        return str(self._folder.path / name)

    def _unload_everywhere(self, name: str) -> bool:
        """Unload an adapter from all servers; return whether no server has it, False if one does not answer."""
        for server in self._servers:
            try:
                server.unload(name, self._path(name))
            except NoServer:
                return False
        return True

    def _with_retries(self, action: Callable[[int], T]) -> T:
        """Return an action's result; repeat the action while no server answers.

        The action receives the number of the attempt. Raises ``NoServer`` once the patience is over.
        """
        end, attempt = perf_counter() + self._patience, 0
        while True:
            try:
                result = action(attempt)
            except NoServer as error:
                if not self._waiting_logged:
                    structlog.get_logger("generator").warning("waiting for a server", error=str(error))
                self._waiting_logged = True
                wait = backoff(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS, attempt)
                attempt += 1
                # Every server is tried, because a request to one that hangs may take all the patience.
                if attempt >= len(self._answering) and perf_counter() + wait > end:
                    raise
                sleep(wait)
            else:
                self._waiting_logged = False
                return result

    @staticmethod
    def _map(action: Callable[[int, T], U], items: Sequence[T]) -> list[U]:
        """Return an action's results for items and their numbers, at most ``OUTSTANDING`` at once."""
        if not items:
            return []
        with ThreadPoolExecutor(min(len(items), OUTSTANDING)) as pool:
            return list(pool.map(action, range(len(items)), items))


class _Ends(Scorer):
    """Scorer of texts' last tokens alone, which is cheap, by a server; they depend on all tokens before them."""

    def __init__(self, server: TextServer) -> None:
        self._server = server

    def score(self, texts: Sequence[Ids], adapter: str) -> list[list[float]]:
        """See ``Scorer.score``."""
        return self._server.score(texts, adapter, _END)


def _zero_adapter(like: Adapter) -> Adapter:
    """Return an all-zero adapter of the modules of ``like``, which answers as the base model."""
    manifest = like.checkpoint.manifest
    assert manifest.lora is not None
    tensors = {
        name: torch.zeros((_RANK, tensor.shape[1]) if ".lora_A." in name else (tensor.shape[0], _RANK))
        for name, tensor in load_tensors(like.checkpoint.parameters).items()
    }
    data = save_tensors(tensors)
    model = ModelHash(key_of(data))
    lora = manifest.lora.replace(rank=_RANK, alpha=_RANK)
    checkpoint = replace(like.checkpoint, model=model, manifest=manifest.replace(lora=lora), parameters=data)
    return Adapter(adapter_name(manifest.config_key, model), checkpoint)
