"""Answer masks on real fast tokenizers of every decoding family, against a brute-force oracle."""

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from outcome_rl.outcomes.answer_mask import answer_mask, decode_completion
from outcome_rl.outcomes.extraction.response import extract_answer
from outcome_rl.outcomes.outcome import Outcome

LINES = ["so the answer is \\boxed{42}.", "we add 7 and 35, hence 42 \\boxed{x+1}", "αβγ 🙂🙃 is it é?", "12 + 30 = 42"]
SPECIAL = ["<pad>", "<eos>", "<think>"]


def wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", additional_special_tokens=["<think>"]
    )


def byte_level() -> PreTrainedTokenizerFast:
    """GPT-2, Llama 3, Qwen: an emoji is up to four tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES[:2], trainer)
    return wrap(tokenizer)


def byte_fallback() -> PreTrainedTokenizerFast:
    """Llama 2, Gemma: Metaspace, the first space is dropped, and each byte of an incomplete character is a U+FFFD."""
    pieces = sorted(
        {f"▁{word}" for line in LINES[:2] for word in line.split()} | set("▁abcdefhinosrtwx0123457+.,={}\\")
    )
    names = [*SPECIAL, "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    tokenizer = Tokenizer(
        models.Unigram(
            [(name, 0.0 if name in SPECIAL else -float(i)) for i, name in enumerate(names)], 3, byte_fallback=True
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return wrap(tokenizer)


def word_level() -> PreTrainedTokenizerFast:
    """One token per word, joined by spaces."""
    words = {word for line in LINES for word in line.split()} | set("0123456789")
    words |= {"\\boxed{ 42 }", "\\boxed{", "}"}
    names = [*SPECIAL, "<unk>", *sorted(words)]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return wrap(tokenizer)


TOKENIZERS = {make.__name__: make() for make in (byte_level, byte_fallback, word_level)}


@pytest.fixture(params=sorted(TOKENIZERS))
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return TOKENIZERS[request.param]


def mask_of(tokenizer: PreTrainedTokenizerFast, ids: list[int], answer: Outcome | None) -> list[bool]:
    mask = answer_mask(tokenizer, [ids], [answer])
    assert mask.dtype == torch.bool
    assert mask.shape == (1, len(ids))
    return mask[0].tolist()


def spelling(tokenizer: PreTrainedTokenizerFast, ids: list[int], start: int, end: int) -> set[int]:
    """Return the tokens between the last settled prefix before a span and the first one that reaches its end."""
    text = decode_completion(tokenizer, ids)
    prefixes = [decode_completion(tokenizer, ids[:count]) for count in range(len(ids) + 1)]
    settled = [count for count, prefix in enumerate(prefixes) if text.startswith(prefix)]
    first = max(count for count in settled if len(prefixes[count]) <= start)
    stop = min(count for count in settled if len(prefixes[count]) >= end)
    return set(range(first, stop))


@settings(deadline=None, max_examples=150)
@given(data=st.data())
@pytest.mark.parametrize("name", sorted(TOKENIZERS))
def test_mask_equals_the_oracle(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    seed = data.draw(st.integers(0, 2**32))
    rng = random.Random(seed)
    # Sampled ids need not be what the tokenizer would make of their text: strays may tear characters apart.
    # Long completions are searched from their end, in pieces.
    lines = rng.choices(LINES, k=rng.choice([1, 1, 4, 20]))
    ids = tokenizer.encode(" ".join(lines), add_special_tokens=False)
    ids = [i for token in ids for i in ([token, rng.randrange(len(tokenizer))] if rng.random() < 0.2 else [token])]
    text = decode_completion(tokenizer, ids)
    if not text:
        return
    start = rng.randrange(max(0, len(text) - rng.choice([20, 100, 10_000])), len(text))
    end = min(rng.randrange(start, len(text)) + 1, start + 30)
    masked = {
        i for i, on in enumerate(mask_of(tokenizer, ids, Outcome(text[start:end], start, end, source="line"))) if on
    }
    assert masked == spelling(tokenizer, ids, start, end)


@pytest.mark.parametrize(("name", "invalid"), [("byte_level", "ÿ"), ("byte_fallback", "<0xFF>")])
def test_thousands_of_invalid_bytes_are_decoded_a_few_times(
    name: str, invalid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, decoded = TOKENIZERS[name], []

    def counting(tokenizer: Any, ids: list[int]) -> str:
        decoded.append(len(ids))
        return decode_completion(tokenizer, ids)

    end = tokenizer.encode("\\boxed{42}", add_special_tokens=False)
    ids = [tokenizer.get_vocab()[invalid]] * 4000 + end
    answer = extract_answer(decode_completion(tokenizer, ids))
    monkeypatch.setattr("outcome_rl.outcomes.answer_mask.decode_completion", counting)
    mask = mask_of(tokenizer, ids, answer)
    assert any(mask)
    assert not any(mask[:4000])
    assert sum(decoded) < 40 * len(ids)


def test_special_tokens_and_padding(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = tokenizer.encode("12 + 30 = 42", add_special_tokens=False)
    text = decode_completion(tokenizer, ids)
    think, eos, pad = tokenizer.convert_tokens_to_ids(["<think>", "<eos>", "<pad>"])
    plain = mask_of(tokenizer, ids, Outcome("42", len(text) - 2, len(text), source="line"))
    first = plain.index(True)
    special = [*ids[:first], think, *ids[first:], eos, pad, pad]
    assert decode_completion(tokenizer, special) == text
    mask = mask_of(tokenizer, special, Outcome("42", len(text) - 2, len(text), source="line"))
    assert mask == [*plain[:first], False, *plain[first:], False, False, False]


def test_tensors_equal_ragged_lists(tokenizer: PreTrainedTokenizerFast) -> None:
    rows = [
        tokenizer.encode(text, add_special_tokens=False) for text in ("12 + 30 = 42", "so the answer is 42", "is it")
    ]
    texts = [decode_completion(tokenizer, row) for row in rows]
    answers = [Outcome("42", len(text) - 2, len(text), source="line") if "42" in text else None for text in texts]
    ragged = answer_mask(tokenizer, rows, answers)
    width = max(map(len, rows))
    padded = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in rows])
    assert torch.equal(answer_mask(tokenizer, padded, answers), ragged)
    assert ragged.any(dim=1).tolist() == [True, True, False]
    assert answer_mask(tokenizer, [], []).shape == (0, 0)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([], "got 0 for 1 completions"),
        ([Outcome("9", 0, 1, source="line")], r"answers\[0\] must be '9' at characters \[0, 1\)"),
        ([Outcome("1", 900, 901, source="line")], r"got '' there"),
    ],
)
def test_answers_that_are_not_in_the_completion_are_named(answers: list[Outcome], message: str) -> None:
    tokenizer = TOKENIZERS["word_level"]
    with pytest.raises(ValueError, match=message):
        answer_mask(tokenizer, [tokenizer.encode("12 + 30 = 42", add_special_tokens=False)], answers)


def test_a_tokenizer_in_the_wrong_place_is_named() -> None:
    tokenizer = TOKENIZERS["word_level"]
    with pytest.raises(TypeError, match=r"tokenizer must be .*got list"):
        answer_mask([[1]], tokenizer, [None])
