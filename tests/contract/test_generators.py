"""The contract of generators."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from every_answer import every_answer
from fake_text_server import FakeTextServer
from language_models import random_adapter, small_base, turns
from vllm_server import shared_vllm

from flyball.app.config import TextServers
from flyball.app.language.generator import Adapter, Generator, PromptRequest, Sampling, UnknownAdapter, check_canary
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.language.served_generator import ServedGenerator
from flyball.app.language.text_game import OneOf, parts_of
from flyball.app.store import MemoryStore

FREE = Sampling(temperature=1.0, stop="\n", most_tokens=6)


STORE = MemoryStore()


@contextmanager
def in_process(folder: Path) -> Iterator[Generator]:
    yield PeftGenerator(small_base(STORE))


@contextmanager
def served(folder: Path) -> Iterator[Generator]:
    base = small_base(STORE)
    with FakeTextServer(small_base(STORE)) as one, FakeTextServer(small_base(STORE)) as other:
        servers = TextServers(addresses=(one.address, other.address), folder=str(folder))
        with closing(ServedGenerator(base, servers, "base")) as generator:
            yield generator


@contextmanager
def by_vllm(folder: Path) -> Iterator[Generator]:
    server = shared_vllm()
    servers = TextServers(addresses=(server.address,), folder=str(server.adapters))
    with closing(ServedGenerator(small_base(STORE), servers, "base")) as generator:
        yield generator


GENERATORS = [in_process, served, pytest.param(by_vllm, marks=pytest.mark.vllm)]


@pytest.fixture(scope="module")
def adapters() -> list[Adapter]:
    maker = PeftGenerator(small_base(STORE))
    return [random_adapter(STORE, maker, seed) for seed in range(8)]


@pytest.fixture(scope="module", params=GENERATORS)
def generator(
    request: pytest.FixtureRequest, adapters: list[Adapter], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Generator]:
    with request.param(tmp_path_factory.mktemp("adapters")) as made:
        for adapter in adapters:
            made.load(adapter)
        yield made
        assert set(made.loaded) == {adapter.name for adapter in adapters}


def requests(names: list[str | None], *, bound: bool = True, seed: int = 0) -> list[PromptRequest]:
    return [
        PromptRequest(turn.prompt, name, turn.answers if bound else None, seed + number)
        for number, (turn, name) in enumerate(zip(turns(len(names)), names, strict=True))
    ]


def test_eight_adapters_in_a_batch_equal_each_alone(generator: Generator, adapters: list[Adapter]) -> None:
    names = [adapters[number % 8].name for number in range(64)] + [None] * 8
    together = generator.generate(requests(names), FREE)
    for name in dict.fromkeys(names):
        alone = generator.generate([one for one in requests(names) if one.adapter == name], FREE)
        batched = [made for made, asked in zip(together, names, strict=True) if asked == name]
        assert [made.ids for made in batched] == [made.ids for made in alone]
        assert np.allclose([made.log_probs for made in batched], [made.log_probs for made in alone], atol=1e-4)
    texts = [made.prompt + made.ids for made in together[:8]]
    scores = [generator.score([texts[0]], name)[0] for name in dict.fromkeys(names)]
    apart = [np.abs(np.subtract(one, other)).max() for k, one in enumerate(scores) for other in scores[:k]]
    assert min(apart) > 1e-2  # no two adapters, nor one and the base, answer alike


def test_answers_along_options_are_legal_and_renormalised(generator: Generator, adapters: list[Adapter]) -> None:
    asked = requests([adapters[0].name] * 40)
    for one, made in zip(asked, generator.generate(asked, FREE), strict=True):
        assert one.answers is not None
        assert parts_of(one.answers, made.text) is not None
        assert made.finish == "stop"
        assert len(made.ids) == len(made.log_probs) == len(made.allowed)
        assert all(token in legal for token, legal in zip(made.ids, made.allowed, strict=True))
    (turn,) = turns(1)
    assert isinstance(turn.answers, OneOf)
    chances = {}
    for seed in range(200):
        (made,) = generator.generate([PromptRequest(turn.prompt, None, turn.answers, seed)], FREE)
        chances[made.text] = np.exp(sum(made.log_probs))
    assert chances.keys() == set(every_answer(turn.answers))
    assert sum(chances.values()) == pytest.approx(1, abs=1e-4)


def test_log_probs_of_free_answers_are_those_of_score(generator: Generator, adapters: list[Adapter]) -> None:
    for name in (None, adapters[3].name):
        for made in generator.generate(requests([name] * 5, bound=False), FREE):
            (scored,) = generator.score([made.prompt + made.ids], name)
            assert np.allclose(scored[len(made.prompt) - 1 :], made.log_probs, atol=1e-4)
            assert made.allowed == ((),) * len(made.ids)


def test_free_answers_end_at_stop_or_at_the_limit(generator: Generator) -> None:
    found = generator.generate(requests([None] * 60, bound=False), FREE)
    assert {made.finish for made in found} == {"stop", "length"} or all(made.finish == "length" for made in found)
    for made in found:
        assert (made.finish == "stop") == made.text.endswith("\n")
        assert len(made.ids) <= FREE.most_tokens


def test_answers_depend_on_their_seed_alone(generator: Generator, adapters: list[Adapter]) -> None:
    asked = requests([adapters[1].name, None] * 10)
    forward = [made.ids for made in generator.generate(asked, FREE)]
    backward = [made.ids for made in generator.generate(asked[::-1], FREE)]
    assert forward == backward[::-1]
    assert forward != [made.ids for made in generator.generate(requests([None] * 20, seed=99), FREE)]


def test_greedy_answers_are_the_most_probable(generator: Generator) -> None:
    greedy = Sampling(temperature=0.0, stop="\n", most_tokens=6)
    (turn,) = turns(1)
    (best,) = generator.generate([PromptRequest(turn.prompt, None, turn.answers, 0)], greedy)
    drawn = [generator.generate([PromptRequest(turn.prompt, None, turn.answers, seed)], FREE)[0] for seed in range(30)]
    assert sum(best.log_probs) >= max(sum(made.log_probs) for made in drawn) - 1e-4


def test_unknown_adapters_and_no_requests_get_no_answers(generator: Generator, adapters: list[Adapter]) -> None:
    assert generator.generate([], FREE) == []
    last = adapters[-1]
    generator.unload(last.name)
    for name in (last.name, "connect_four_text_2p@" + "0" * 64, "none"):
        with pytest.raises(UnknownAdapter, match="loaded"):
            generator.generate(requests([name]), FREE)
    with pytest.raises(UnknownAdapter):
        generator.unload(last.name)
    generator.load(last)
    generator.load(last)  # loaded already
    assert check_canary(generator, last) < 1e-4
    first, *others = generator.loaded
    generator.load(next(adapter for adapter in adapters if adapter.name == first))
    assert generator.loaded == (*others, first)
