"""A game in words by TRL's GRPOTrainer in self-play, governed by Flyball.

Take 1, 2 or 3 of a heap; who takes the last one wins. The first model is noise with a tokenizer of the game's words, so
nothing is downloaded, and answers must become legal before they can become good.
"""

import json
import random
import sys
from functools import lru_cache
from hashlib import file_digest
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

from datasets import Dataset
from safetensors.torch import load_model, save_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

import flyball

FILES = Path("trl_files")
ASK, MOST = "take 1 , 2 or 3 of {}", 12
WORDS = ["[end]", *ASK.format("").split(), *map(str, (0, *range(4, MOST + 1)))]
TOKENS = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[end]"))
TOKENS.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
TOKENIZER = PreTrainedTokenizerFast(tokenizer_object=TOKENS, eos_token="[end]", pad_token="[end]", padding_side="left")
LLAMA = LlamaConfig(
    vocab_size=len(WORDS), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    pad_token_id=0, eos_token_id=0, bos_token_id=0,
)  # fmt: skip
OPTIONS = {
    "per_device_train_batch_size": 128, "max_completion_length": 1, "entropy_coef": 0.1,
    "lr_scheduler_type": "constant", "use_cpu": True, "bf16": False, "gradient_checkpointing": False,
    "report_to": [], "save_strategy": "no", "logging_strategy": "epoch", "disable_tqdm": True,
}  # fmt: skip


def moved(position, answer):
    """Return the position after an answer, and None if that is no legal move."""
    left = int(position.split()[-1])
    return ASK.format(left - int(answer)) if answer in ("1", "2", "3") and int(answer) <= left else None


def over(position):
    return position == ASK.format(0)


def answers(model, positions, temperature):
    if model is None:
        return [str(random.randint(1, min(3, int(position.split()[-1])))) for position in positions]
    asked = TOKENIZER(positions, return_tensors="pt", return_token_type_ids=False)
    ids = model.generate(**asked, do_sample=True, temperature=temperature, max_new_tokens=1)
    return TOKENIZER.batch_decode(ids[:, -1:], skip_special_tokens=True)


def play(starts, pairs, temperature):
    """Play games side by side; return the positions of each, and its winner: 0 for who begins, else 1.

    Who gives an answer that is no legal move loses.
    """
    games, winners, mover = [[start] for start in starts], [None] * len(starts), 0
    while going := [number for number, winner in enumerate(winners) if winner is None]:
        for model in {pairs[number][mover] for number in going}:
            asked = [number for number in going if pairs[number][mover] is model]
            given = answers(model, [games[number][-1] for number in asked], temperature)
            for number, answer in zip(asked, given, strict=True):
                if (position := moved(games[number][-1], answer)) is None:
                    winners[number] = 1 - mover
                elif over(position):
                    winners[number] = mover
                else:
                    games[number].append(position)
        mover = 1 - mover
    return games, winners


def opening(seed):
    return ASK.format(random.Random(seed).randint(MOST - 3, MOST))


def rewarded(base):
    """Return TRL's reward function: the result of the game that ``base`` plays on, for both sides, after an answer."""

    def reward(prompts, completions, **_):
        after = [moved(*pair) for pair in zip(prompts, completions, strict=True)]
        rewards = [-1.0 if position is None else 1.0 for position in after]
        going = [number for number, position in enumerate(after) if position and not over(position)]
        _, winners = play([after[number] for number in going], [(base, base)] * len(going), 1.0)
        for number, winner in zip(going, winners, strict=True):
            rewards[number] = 2.0 * winner - 1.0
        return rewards

    return reward


# All that Flyball needs follows: files by the hash of their content, and a function for each kind of request.
def stored(write):
    FILES.mkdir(exist_ok=True)
    write(part := FILES / f"{random.SystemRandom().getrandbits(64)}.part")
    with part.open("rb") as file:
        name = file_digest(file, "sha256").hexdigest()
    part.rename(FILES / name)
    return name


def loaded(name):
    model = LlamaForCausalLM(LLAMA)
    if name:
        load_model(model, FILES / name)
    return model.eval()


@lru_cache(maxsize=16)
def player(name):
    return None if name == "random" else loaded(name)


def selfplay(request):
    """Play games, and store the positions that the model had to answer."""
    set_seed(seed := request["seed"] % 2**32)
    model, count = player(request["model"]), request["games"]
    others = [player(lineup["opponents"][0]) for lineup in request["lineups"] for _ in range(lineup["games"])]
    others += [model] * (count - len(others))
    pairs = [(model, other)[:: 1 - 2 * (number % 2)] for number, other in enumerate(others)]
    games, _ = play([opening(seed + number) for number in range(count)], pairs, request["temperature"])
    movers = [zip(positions, cycle(pair), strict=False) for positions, pair in zip(games, pairs, strict=True)]
    rows = [position for moves in movers for position, mover in moves if mover is model]
    return {"shard": stored(lambda path: path.write_text(json.dumps(rows))), "rows": len(rows)}


def train(request):
    """Let TRL answer the positions, and learn from the rewards."""
    set_seed(seed := request["seed"] % 2**32)
    model, base, metrics = loaded(request["base_model"]), loaded(request["base_model"]), {}
    rows = [{"prompt": row} for shard in request["shards"] for row in json.loads((FILES / shard).read_text())]
    if rows:
        knobs = {"learning_rate": request["learning_rate"], "num_train_epochs": request["epochs"], "seed": seed}
        with TemporaryDirectory() as folder:
            config = GRPOConfig(folder, **OPTIONS, **knobs)
            trainer = GRPOTrainer(model, rewarded(base), config, Dataset.from_list(rows), processing_class=TOKENIZER)
            trainer.train()
        logged = [line for line in trainer.state.log_history if "reward" in line]
        metrics = {name: float(logged[-1][name]) for name in ("reward", "entropy", "grad_norm")}
    return {"model": stored(lambda path: save_model(model, path)), "metrics": metrics}


def evaluate(request):
    numbers = range(request["first"], request["first"] + request["games"])
    set_seed((request["seed"] + request["first"]) % 2**32)
    pair = player(request["model"]), player(request["opponent"])
    starts = [opening(request["seed"] + number // 2) for number in numbers]  # each for both seats
    _, winners = play(starts, [pair[:: 1 - 2 * (number % 2)] for number in numbers], request["temperature"])
    return {"scores": [float(winner == number % 2) for number, winner in zip(numbers, winners, strict=True)]}


if __name__ == "__main__":
    work = {"selfplay": selfplay, "training": train, "evaluation": evaluate}
    for request in flyball.participate(sys.argv[1], *(sys.argv[2:] or work)):
        with request:  # an exception in the block is the request's failure
            request.succeed(**work[request.kind](request))
