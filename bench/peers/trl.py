"""Stand-ins for what TRL's GRPO tests load from the Hugging Face Hub: tiny random models, a tokenizer, a data set.

The tokenizer has the merges of Qwen2's that the tests need. Token ids that are written in the tests become its own. The
merges come from `qwen.tiktoken` in the package dashscope, which pip downloads.
"""

import base64
import codecs
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

SUITE = "tests/test_grpo_trainer.py"
FILES = (SUITE, "tests/__init__.py", "tests/conftest.py", "tests/testing_utils.py")
LEFT_OUT = "not VLM and not vlm and not vision and not liger"  # vision models have no stand-ins
DASHSCOPE = "dashscope==2.0.2"
FIRST_SPECIAL = 151_643  # of Qwen2's tokens
SPECIAL = {
    **{"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645, "<|vision_start|>": 151652},
    **{"<|vision_end|>": 151653, "<|vision_pad|>": 151654, "<|image_pad|>": 151655, "<|video_pad|>": 151656},
    **{"<tool_call>": 151657, "</tool_call>": 151658, "<tool_response>": 151665, "</tool_response>": 151666},
    **{"<think>": 151667, "</think>": 151668},
}
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MORE_TEXT = " system user assistant You are a helpful assistant. Count. Echo. name arguments multiply_tool"
COMMON: dict[str, Any] = {
    **{"hidden_size": 8, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "max_position_embeddings": 1024},
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
MODELS: dict[str, Any] = {  # name -> type, chat template, configuration
    "Qwen2ForCausalLM-2.5": ("qwen2", "qwen2_5", {"rope_theta": 1e6, "tie_word_embeddings": False}),
    "Qwen3ForCausalLM": ("qwen3", "qwen3", {"head_dim": 4}),
    "Qwen3MoeForCausalLM": (
        *("qwen3_moe", "qwen3"),
        {"head_dim": 4, "num_experts": 4, "decoder_sparse_step": 1, "norm_topk_prob": True, **EXPERTS},
    ),
    "Cohere2ForCausalLM": ("cohere2", "qwen2_5", {"head_dim": 4}),
    "Glm4MoeForCausalLM": (
        *("glm4_moe", "qwen2_5"),
        {"head_dim": 4, "n_routed_experts": 4, "first_k_dense_replace": 1, "n_shared_experts": 1, **EXPERTS},
    ),
    "GptOssForCausalLM": ("gpt_oss", "qwen2_5", {"head_dim": 4, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "Gemma2ForCausalLM": ("gemma2", "qwen2_5", {"head_dim": 4, "query_pre_attn_scalar": 4}),
    "NemotronHForCausalLM-nano": (
        *("nemotron_h", "qwen2_5"),
        {
            **{"head_dim": 4, "layers_block_type": ["mamba", "moe", "attention"], "mamba_num_heads": 2},
            **{"mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 1, "n_routed_experts": 4, "n_group": 1},
            **{"topk_group": 1, "moe_shared_expert_intermediate_size": 16, "num_hidden_layers": 3, **EXPERTS},
        },
    ),
    "Qwen2ForSequenceClassification-2.5": ("qwen2", "qwen2_5", {"num_labels": 1}),
    "Qwen3ForSequenceClassification": ("qwen3", "qwen3", {"head_dim": 4, "num_labels": 1}),
    "LlamaForSequenceClassification-3.2": ("llama", "qwen2_5", {"num_labels": 1}),
}


def prepare(suite: Path, work: Path) -> None:
    """Write the stand-ins into the folder `trl-internal-testing`, whose names are then paths, and change token ids."""
    file = suite / SUITE
    tokenizer, new_ids = make_tokenizer(file.read_text())
    file.write_text(_LISTS.sub(lambda found: _renamed(found.group(), new_ids), file.read_text()))
    folder = work / "trl-internal-testing"
    for name, spec in MODELS.items():
        save(folder / f"tiny-{name}", *spec, tokenizer=tokenizer)
    write_data(folder / "zen")


_LISTS = re.compile(r"\[[\d,\s]+\]")


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list in a test, if it is a list of token ids: there is a special one in it."""
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    return numbers if any(FIRST_SPECIAL <= number < 152_000 for number in numbers) else []


def _renamed(text: str, new_ids: dict[int, int]) -> str:
    numbers = _numbers(text)
    return f"[{', '.join(str(new_ids[number]) for number in numbers)}]" if numbers else text


@cache
def ranks() -> dict[bytes, int]:
    """Return the tokens of Qwen2's vocabulary with their ranks."""
    folder = Path.home() / ".cache" / "outcome-rl-peers"
    if not [*folder.glob("dashscope-*.whl")]:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), DASHSCOPE]
        subprocess.run(command, check=True)
    with zipfile.ZipFile(next(folder.glob("dashscope-*.whl"))) as wheel:
        lines = wheel.read("dashscope/resources/qwen.tiktoken").split(b"\n")
    return {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in lines if line.strip()}


def merges_of(word: bytes, below: int | None = None) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the merges by which byte-pair encoding reads a word, with their ranks, of ranks below a bound."""
    parts = [bytes([one]) for one in word]
    while True:
        pairs = [(ranks().get(left + right), i) for i, (left, right) in enumerate(pairwise(parts))]
        known = [(rank, i) for rank, i in pairs if rank is not None and (below is None or rank < below)]
        if not known:
            return
        rank, i = min(known)
        yield rank, parts[i], parts[i + 1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def make_tokenizer(tests: str) -> tuple[Any, dict[int, int]]:
    """Return a tokenizer that reads the texts as Qwen2's does, and from ids that the tests name to its own."""
    import regex  # type: ignore[import-untyped]
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    token_of = {rank: token for token, rank in ranks().items()}
    named = {n for found in _LISTS.findall(tests) for n in _numbers(found) if n < FIRST_SPECIAL}
    merges = {merge for word in regex.findall(WORDS, zen() + MORE_TEXT) for merge in merges_of(word.encode())}
    merges |= {merge for n in named for merge in merges_of(token_of[n], n + 1)}
    letters = _letters()

    def shown(token: bytes) -> str:
        return "".join(letters[one] for one in token)

    ordered = sorted(merges)
    tokens = [token_of[n] for n in range(256)] + [left + right for _, left, right in ordered]
    vocabulary = {shown(token): i for i, token in enumerate(dict.fromkeys(tokens))}
    pairs = [(shown(left), shown(right)) for _, left, right in ordered]
    tokenizer = Tokenizer(models.BPE(vocab=dict(vocabulary), merges=pairs))
    split = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=32_768
    )
    fast.add_tokens([AddedToken(one, special=one.startswith("<|"), normalized=False) for one in SPECIAL])
    new_ids = {n: vocabulary[shown(token_of[n])] for n in {*named, *range(256)}}
    return fast, new_ids | {n: fast.convert_tokens_to_ids(one) for one, n in SPECIAL.items()}


def _letters() -> dict[int, str]:
    """Return the letters for bytes of byte-level vocabularies: printable ones are themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [one for one in range(256) if one not in printable]
    return {one: chr(one) for one in printable} | {one: chr(256 + i) for i, one in enumerate(others)}


def save(folder: Path, kind: str, template: str, config: dict[str, Any], *, tokenizer: Any) -> None:
    """Write a random model of a type, with the tokenizer and one of TRL's chat templates."""
    import torch
    import transformers
    import trl

    torch.manual_seed(0)
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    size = (len(tokenizer) + 15) // 16 * 16
    scored = "num_labels" in config
    of = transformers.AutoModelForSequenceClassification if scored else transformers.AutoModelForCausalLM
    made = transformers.AutoConfig.for_model(kind, **{**COMMON, **ends, "vocab_size": size, **config})
    model = of.from_config(made, dtype=torch.float32)
    if not scored:
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / f"{template}.jinja").read_text()
    tokenizer.save_pretrained(folder)


@cache
def zen() -> str:
    """Return the Zen of Python, whose lines are TRL's data set."""
    with redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13")


def write_data(folder: Path) -> None:
    """Write the configurations of the data set that the tests read, seventeen rows to train on and two to test."""
    lines = [line.split() for line in zen().splitlines()[2:]]
    halves = [(" ".join(line[: max(1, len(line) * 2 // 3)]), line[max(1, len(line) * 2 // 3) :]) for line in lines]
    rows: dict[str, list[Any]] = {
        "standard_prompt_only": [{"prompt": prompt} for prompt, _ in halves],
        "standard_prompt_completion": [{"prompt": prompt, "completion": " " + " ".join(end)} for prompt, end in halves],
        "conversational_prompt_only": [
            {"prompt": [{"role": "user", "content": f"What is better than ugly? {prompt}"}]} for prompt, _ in halves
        ],
    }
    configs = []
    for name, all_rows in rows.items():
        (folder / name).mkdir(parents=True)
        splits = {"train": all_rows[:17], "test": all_rows[17:]}
        for split, some in splits.items():
            (folder / name / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
        files = "".join(f"  - split: {split}\n    path: {name}/{split}.jsonl\n" for split in splits)
        configs.append(f"- config_name: {name}\n  data_files:\n{files}")
    (folder / "README.md").write_text(f"---\nconfigs:\n{''.join(configs)}---\n")
