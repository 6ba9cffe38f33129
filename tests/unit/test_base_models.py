"""Base models: the small one, its tokenizer, and the user's own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from language_models import small_base, turns
from profiles import examples
from tokenizers import Tokenizer
from tokenizers.normalizers import Strip

from flyball.app.config import GAMES, LanguageSettings
from flyball.app.language.base_files import NoBaseModel, UnfitLanguageSettings, check_settings
from flyball.app.language.base_model import (
    check_texts,
    draw_base,
    export_base,
    get_base,
    load_base,
    put_base,
    train_tokenizer,
    vocabulary_of,
)
from flyball.app.language.lessons import small_base as taught_base
from flyball.app.language.models import base_of
from flyball.app.language.packages import NoLanguagePackages, require_packages
from flyball.app.language.scoring import answer_logits, common_prefix
from flyball.app.language.text_games import open_text_table
from flyball.app.language.trie import UnusableTokenizer
from flyball.app.store import DamagedBlob, MemoryStore

KEY = "tic_tac_toe_text_2p"
PROMPT = turns(1)[0].prompt
TOKENIZER = train_tokenizer([turn.prompt for turn in turns(10)], 400)


@settings(max_examples=examples(50))
@given(st.text(max_size=60))
def test_tokenizer_loses_no_text(text: str) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=False).ids
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


def logits(base, answer: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return answer_logits(base.model, [base.encode(PROMPT)], [answer])


def saved(folder: Path, store: MemoryStore):
    made = small_base(store)
    made.model.save_pretrained(folder)
    made.tokenizer.save(str(folder / "tokenizer.json"))
    return made


def test_tokenizer_and_weights_depend_on_texts_and_seed_alone() -> None:
    texts = [turn.prompt for turn in turns(10)]
    assert train_tokenizer(texts, 400).to_str() == TOKENIZER.to_str()
    store = MemoryStore()
    keys = [put_base(store, draw_base(TOKENIZER, seed, layers=1, width=16, heads=2)) for seed in (0, 0, 1)]
    assert keys[0] == keys[1] != keys[2]
    assert 0.5e6 < sum(parameter.numel() for parameter in draw_base(TOKENIZER, 0).model.parameters()) < 1e6


def test_stored_or_exported_base_answers_as_before(tmp_path: Path) -> None:
    made, folder, store = small_base(MemoryStore()), tmp_path / "served" / "base", MemoryStore()
    export_base(made, folder)
    export_base(made, folder)
    assert [path.name for path in folder.parent.iterdir()] == ["base"]
    for loaded in (load_base(str(folder)), get_base(store, put_base(store, made))):
        assert loaded.encode(PROMPT) == made.encode(PROMPT)
        assert loaded.decode(loaded.encode(PROMPT)) == PROMPT
        assert torch.equal(logits(made, [1, 2]), logits(loaded, [1, 2]))


def test_lessons_bring_the_loss_down() -> None:
    language = LanguageSettings(lessons=2_560, base_layers=1, base_width=32, base_heads=2, teacher="random")
    losses: list[float] = []
    taught_base(GAMES[KEY].replace(language=language), 0, lambda *told: losses.append(told[2]))
    assert len(losses) == 10
    assert losses[-1] < losses[0] - 1


def test_missing_base_model_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises((NoBaseModel, DamagedBlob)):
        get_base(store := MemoryStore(), store.put(b"\x02\0\0\0\0\0\0\0{}"))
    with pytest.raises(NoBaseModel, match="no folder, and not in the local cache") as refusal:
        load_base("nobody/such-a-model")
    assert "hf download nobody/such-a-model" in refusal.value.hint
    with pytest.raises(NoBaseModel, match=r"has no config\.json"):
        load_base(str(tmp_path))
    for name, content in (("config.json", b"{}"), ("tokenizer.json", b"{}"), ("model.safetensors", b"")):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(NoBaseModel, match="cannot be loaded"):
        load_base(str(tmp_path))


def test_base_model_of_a_folder_is_known_by_its_content(tmp_path: Path) -> None:
    made = saved(tmp_path, store := MemoryStore())
    loaded = load_base(str(tmp_path))
    for base, key in ((None, made.fingerprint), (str(tmp_path), loaded.fingerprint)):
        assert vocabulary_of(store, base, key).encode(PROMPT) == made.encode(PROMPT) == loaded.encode(PROMPT)
    assert torch.allclose(logits(made, [1]), logits(loaded, [1]))
    config = GAMES[KEY].replace(language=LanguageSettings(base=str(tmp_path)))
    assert base_of(store, config, loaded.fingerprint).fingerprint == loaded.fingerprint
    small_base(store, seed=9).model.save_pretrained(tmp_path)
    with pytest.raises(NoBaseModel, match="MODEL_MISMATCH"):
        base_of(store, config, loaded.fingerprint)
    with pytest.raises(NoBaseModel, match="MODEL_MISMATCH"):
        vocabulary_of(MemoryStore(), str(tmp_path), loaded.fingerprint)


@pytest.mark.parametrize(
    ("changes", "what", "hint"),
    [
        ({"teacher": "master"}, "teacher: tic_tac_toe has no bot 'master'", "random"),
        ({"targets": ("q_proj", "c_attn")}, "targets: the base model has no module 'c_attn'", "down_proj"),
        ({"rank": 64, "base_width": 32}, "rank: 64 is more than q_proj can have, 32", "32 or less"),
    ],
)
def test_settings_that_fit_no_base_are_refused(changes: dict[str, Any], what: str, hint: str) -> None:
    config = GAMES[KEY].replace(language=GAMES[KEY].language.replace(**changes))
    with pytest.raises(UnfitLanguageSettings, match=what) as refusal:
        check_settings(config, open_text_table(config, 0).spec)
    assert hint in refusal.value.hint


def test_settings_are_compared_with_the_users_base(tmp_path: Path) -> None:
    saved(tmp_path, MemoryStore())
    game = open_text_table(GAMES[KEY], 0).spec

    def check(**changes: Any) -> None:
        check_settings(GAMES[KEY].replace(language=LanguageSettings(base=str(tmp_path), **changes)), game)

    check(targets=("self_attn.q_proj", "down_proj"))
    with pytest.raises(UnfitLanguageSettings, match="has no module 'c_attn'"):
        check(targets=("c_attn",))
    with pytest.raises(UnfitLanguageSettings, match="33 is more than q_proj can have, 32"):
        check(rank=33)
    for rank, content in ((9, b""), (10, b"version https://git-lfs.github.com/spec/v1"), (11, b"\xff" * 9)):
        (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(NoBaseModel, match=r"model\.safetensors is no safetensors file"):
            check(rank=rank)
    with pytest.raises(ValueError, match="must be a multiple"):
        LanguageSettings(base_width=36, base_heads=4)


def test_texts_that_a_base_cannot_handle_are_refused() -> None:
    base = draw_base(TOKENIZER, 0, layers=1, width=16, heads=1)
    check_texts(base, GAMES[KEY])
    free = GAMES[KEY].replace(language=LanguageSettings(constrained=False, most_tokens=1))
    with pytest.raises(UnfitLanguageSettings, match="most_tokens: an answer takes"):
        check_texts(base, free)
    base.model.config.max_position_embeddings = 20
    with pytest.raises(UnfitLanguageSettings, match="reads 20 tokens"):
        check_texts(base, GAMES[KEY])
    tokenizer = Tokenizer.from_str(TOKENIZER.to_str())
    tokenizer.normalizer = Strip()
    with pytest.raises(UnusableTokenizer, match="writes the answer"):
        check_texts(replace(base, tokenizer=tokenizer), GAMES[KEY])


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball.app.language.packages.PACKAGES", ("no_such_package",))
    with pytest.raises(NoLanguagePackages, match="no_such_package") as refusal:
        require_packages()
    assert "flyball[language]" in refusal.value.hint


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=5))
def test_common_prefix_leaves_each_prompt_a_token(prompts: list[list[int]]) -> None:
    length = common_prefix(prompts)
    assert all(prompt[:length] == prompts[0][:length] and len(prompt) > length for prompt in prompts)
    assert length == min(map(len, prompts)) - 1 or len({prompt[length] for prompt in prompts}) > 1
