"""GRPO: loss against one by hand, advantages, updates, and exports."""

import dataclasses
import json
from contextlib import nullcontext
from math import exp
from pathlib import Path

import numpy as np
import pytest
import torch
from language_models import KEY, canary_texts, passes_canary, random_adapter, small_base

from flyball.app.config import GAMES, Compute, LanguageSettings
from flyball.app.config.devices import Precision
from flyball.app.core import UnusableFile
from flyball.app.language.adapters import WEIGHTS, export_adapter
from flyball.app.language.generator import get_adapter
from flyball.app.language.grpo import METRICS, Answered, advantages, answered_log_probs, grpo_loss, improve
from flyball.app.language.jobs import answers_of, checkpointed_layers, initialise, train
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.language.selfplay import play
from flyball.app.language.token_shard import TokenShard, get_token_shard
from flyball.app.learning.training import DiscardedUpdate, UnfitData
from flyball.app.store import FileStore, MemoryStore, get_checkpoint

SMALL = GAMES[KEY].replace(
    language=LanguageSettings(lessons=256, teacher="random", base_layers=2, base_width=32, base_heads=2, group_games=4)
)


ABOUT = {"games": 8, "temperature": 1.0, "worker": "test"}


def by_hand(new, old, base, advantage, learned, settings) -> float:
    """Return the sum of the answers' losses, token by token."""
    total = 0.0
    for b in range(len(new)):
        places = [t for t in range(len(new[b])) if learned[b][t]]
        mean_ratio = exp(sum(new[b][t] - old[b][t] for t in places) / len(places))
        loss = 0.0
        for t in places:
            ratio = exp(new[b][t] - old[b][t]) if settings.ratio == "token" else mean_ratio
            clipped = min(max(ratio, 1 - settings.clip_epsilon), 1 + settings.clip_epsilon)
            surrogate = min(ratio * advantage[b], clipped * advantage[b])
            divergence = exp(base[b][t] - new[b][t]) - (base[b][t] - new[b][t]) - 1
            loss += -surrogate + settings.kl_coef * divergence
        total += loss / len(places)
    return total


@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize(("kl_coef", "legality_coef"), [(0.0, 0.0), (0.3, 0.5)])
def test_loss_equals_the_one_by_hand(ratio: str, kl_coef: float, legality_coef: float) -> None:
    rng = np.random.default_rng(0)
    settings = LanguageSettings(ratio=ratio, kl_coef=kl_coef, legality_coef=legality_coef)
    new, old, base, legal = (-rng.random((5, 7)) * 2 for _ in range(4))
    advantage, learned = rng.normal(size=5), rng.random((5, 7)) < 0.7
    learned[:, 0] = True
    arguments = [torch.tensor(array) for array in (new, old, base, legal)]
    arguments[0].requires_grad_()
    loss, figures = grpo_loss(
        *arguments,
        advantage=torch.tensor(advantage),
        learned=torch.tensor(learned),
        lengths=torch.full((5,), 7),
        settings=settings,
    )
    illegality = -legal.sum() / 7
    expected = by_hand(new, old, base, advantage, learned, settings) + legality_coef * illegality
    assert loss.item() == pytest.approx(expected, rel=1e-9)
    assert figures[METRICS.index("illegality")].item() == pytest.approx(illegality)
    loss.backward()
    gradient = arguments[0].grad
    assert gradient is not None
    assert (gradient[~torch.tensor(learned)] == 0).all()
    assert (gradient != 0).any()
    assert figures.isfinite().all()


def test_clipped_answers_have_the_gradient_of_divergence_only() -> None:
    new = torch.tensor([[0.0]], requires_grad=True)
    loss, _ = grpo_loss(
        new,
        *(torch.tensor([[number]]) for number in (-1.0, 0.0, 0.0)),
        advantage=torch.tensor([1.0]),
        learned=torch.tensor([[True]]),
        lengths=torch.tensor([1]),
        settings=LanguageSettings(kl_coef=0.0),
    )
    loss.backward()
    assert new.grad is not None
    assert new.grad.item() == 0


def test_advantages_are_those_of_the_group() -> None:
    reward = np.array([1, 0, 0, -1, 5, 5, 7], dtype=np.float32)
    group = np.array([0, 0, 0, 0, 1, 1, 2], dtype=np.int32)
    assert advantages(reward, group, standardised=False).tolist() == [1, 0, 0, -1, 0, 0, 0]
    standardised = advantages(reward, group, standardised=True)
    assert np.allclose(standardised, [1 / 0.8166, 0, 0, -1 / 0.8166, 0, 0, 0], atol=1e-3)
    thirds = np.full(7, 1 / 3, np.float32)  # whose mean is not a third in float32
    assert not any(advantages(thirds, np.zeros(7, np.int32), standardised=flag).any() for flag in (False, True))


def answered(generator: PeftGenerator, advantage: float) -> Answered:
    text = canary_texts(generator.base)[0]
    prompt, ids = text[:-2], text[-2:]
    (scores,) = generator.score([text], None)
    generator.peft.base_model.set_adapter("trained")
    return Answered(prompt, ids, [(), ()], scores[-2:], [True, True], 1.0, advantage, base_log_probs=scores[-2:])


def adapted(precision: Precision = "float32", **changes: float) -> PeftGenerator:
    """Return a generator with an adapter that is to be trained."""
    generator = PeftGenerator(small_base(store := MemoryStore()), Compute(precision=precision))
    generator.add("trained", random_adapter(store, generator, 0, **changes))
    generator.peft.base_model.set_adapter("trained")
    return generator


def parameters_of(generator: PeftGenerator) -> list[torch.nn.Parameter]:
    return [one for one in generator.peft.parameters() if one.requires_grad]


def improved(generator: PeftGenerator, answers: list[Answered], epochs: int = 1, lr: float = 1e-2, **settings: float):
    """Train the adapter; return the divergences of the epochs."""
    moved: list[float] = []
    improve(
        generator.base.model,
        arithmetic=generator.arithmetic,
        parameters=parameters_of(generator),
        optimizer=torch.optim.AdamW(parameters_of(generator), lr=lr, weight_decay=0.0),
        answers=answers,
        settings=LanguageSettings(**settings),
        epochs=epochs,
        generator=torch.Generator().manual_seed(0),
        report=lambda _, metrics: moved.append(metrics["approx_kl"]),
    )
    return moved


@pytest.mark.parametrize(("sign", "precision"), [(1.0, "float32"), (-1.0, "float32"), (1.0, "bfloat16")])
def test_update_makes_good_answers_likelier_and_bad_ones_less(sign: float, precision: Precision) -> None:
    generator = adapted(precision, size=0.0)
    row = answered(generator, sign)
    moved = improved(generator, [row], epochs=3, kl_coef=0.0)
    after = answered_log_probs(generator.base.model, [row])[0].sum().item()
    assert sign * (after - sum(row.log_probs)) > 0.01
    assert moved[0] < moved[1] < moved[2]  # each step is taken from where the one before ended


def test_update_that_moves_too_far_is_discarded() -> None:
    generator = adapted()
    with pytest.raises(DiscardedUpdate, match="moved by"):
        improved(generator, [answered(generator, 1.0)], lr=1e-4, max_kl=1e-9)


def specs(folder: Path, **changes: object) -> dict[str, object]:
    config = SMALL.replace(**changes)
    return {"store": str(folder), "config": config.model_dump(mode="json"), "seed": 1}


def silent(_report: object) -> None:
    return None


def shard_of(spec: dict[str, object], folder: Path) -> TokenShard:
    model = initialise(spec, silent)["model"]
    return get_token_shard(FileStore(folder), play(spec | ABOUT | {"model": model}, silent)["shard"])


def test_played_log_probs_are_those_of_the_trainer(tmp_path: Path) -> None:
    """Decoding and training use the same masks, so first ratios are 1."""
    spec = specs(tmp_path)
    model = initialise(spec, silent)["model"]
    lineups = {"lineups": [{"opponents": ["random"], "games": 4}]}
    played = play(spec | ABOUT | lineups | {"model": model, "temperature": 0.7}, silent)
    shard = get_token_shard(FileStore(tmp_path), played["shard"])
    assert len(np.unique(shard.group[shard.game < 4] % 2)) == 1  # one group against the bot, in one seat
    assert len(np.unique(shard.start)) == 2
    reports: list[dict[str, object]] = []
    training = {"base_model": model, "shards": [played["shard"]], "step": 0, "learning_rate": 1e-3, "epochs": 2}
    result = train(spec | training, reports.append)
    assert [report["epoch"] for report in reports] == [1, 2]
    assert abs(reports[0]["metrics"]["approx_kl"]) < 1e-6
    assert abs(reports[0]["metrics"]["divergence"]) < 1e-6
    assert reports[1]["metrics"]["divergence"] > 0
    child = get_checkpoint(FileStore(tmp_path), result["model"], optimizer=True)
    assert (child.manifest.parent, child.manifest.step, child.manifest.content) == (model, 1, "lora")
    assert child.optimizer is not None
    further = spec | training | {"base_model": result["model"], "step": 1}
    again = train(further, silent)  # goes on with Adam's state
    assert (again["step"], len(FileStore(tmp_path).get(again["model"])) > 0) == (2, True)
    assert train(further, silent)["model"] == again["model"]
    with pytest.raises(UnfitData, match="not"):
        train(spec | training | {"step": 5}, silent)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_checkpointed_layers_give_the_same_gradients(precision: Precision) -> None:
    generator = adapted(precision)
    rows = [
        Answered(text[:-2], text[-2:], [(), (text[-1], 5)], [-1.0, -0.5], [True, True], 0.7, gain, [-1.2, -0.4])
        for text, gain in zip(canary_texts(generator.base), (1.0, -0.5, 0.3), strict=True)
    ]
    gradients = []
    for checkpointing in (False, True):
        generator.peft.zero_grad()
        with checkpointed_layers(generator.base.model) if checkpointing else nullcontext():
            limits = {"legality_coef": 1.0, "max_kl": 1e9, "max_grad_norm": 1e9}
            improved(generator, rows, lr=0.0, gradient_checkpointing=checkpointing, **limits)
        gradients.append([one.grad.clone() for one in parameters_of(generator)])
    assert not any(module.training for module in generator.peft.modules())
    for plain, again in zip(*gradients, strict=True):
        scale = float(plain.abs().max())
        assert torch.allclose(plain, again, atol=scale * (1e-4 if precision == "float32" else 0.1))


def test_training_on_legal_answers_keeps_free_ones_legal() -> None:
    """The loss term raises the probability of the allowed tokens. It leaves their shares alone."""
    generator = adapted()
    row = dataclasses.replace(answered(generator, 0.0), allowed=[(1, 2, 3), (4, 5)], ids=[1, 4])
    _, before = answered_log_probs(generator.base.model, [row])
    improved(generator, [row] * 5, epochs=5, kl_coef=0.0, legality_coef=1.0, batch_rows=2, max_kl=1e9)
    _, after = answered_log_probs(generator.base.model, [row])
    assert (after > before + 0.1).all()


def test_answers_without_advantage_or_of_cut_games_are_left_out(tmp_path) -> None:
    spec = specs(tmp_path, language=SMALL.language.replace(lessons=0))
    shard = shard_of(spec, tmp_path)
    kept = np.where(shard.start[shard.game] == 0, shard.reward, 0).astype(np.float32)
    answers, figures = answers_of([dataclasses.replace(shard, reward=kept)], SMALL)
    every, none = answers_of([dataclasses.replace(shard, reward=shard.reward * 0)], SMALL)
    assert 0 < len(answers) < len(every)
    assert all(answer.advantage for answer in answers)
    assert figures["decided"] == pytest.approx(len(answers) / len(every))
    assert none["decided"] == 0
    shard = shard_of(specs(tmp_path, max_moves=4), tmp_path)
    assert shard.truncated.all()
    answers, figures = answers_of([shard], SMALL)
    assert (len(answers), figures["decided"]) == (shard.rows, 0)
    left = SMALL.replace(language=SMALL.language.replace(truncated="left_out"))
    with pytest.raises(UnfitData, match="no answer"):
        answers_of([shard], left)


def test_exported_adapter_is_loaded_by_peft(tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    generator = PeftGenerator(small_base(store := MemoryStore()))
    adapter = random_adapter(store, generator, 0)
    small_base(store).model.save_pretrained(tmp_path / "base")
    (tmp_path / f"{adapter.name}.part").mkdir()  # of an export that was killed
    folder = export_adapter(adapter, tmp_path, str(tmp_path / "base"))
    assert folder.name == adapter.name
    assert json.loads((folder / "flyball.json").read_text())["lora"]["rank"] == 4
    assert export_adapter(adapter, tmp_path, str(tmp_path / "base")) == folder
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), folder).eval()
    assert passes_canary(loaded, adapter)
    (folder / WEIGHTS).write_bytes(b"another")
    with pytest.raises(UnusableFile, match="another adapter than its name"):
        export_adapter(adapter, tmp_path, "base")
    assert get_adapter(store, adapter.checkpoint.model).name == adapter.name
