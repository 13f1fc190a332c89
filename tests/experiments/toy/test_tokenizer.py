"""Toy tokenizer: one token per word, exact round trips, any text accepted."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from experiments.toy.demonstrator import demonstrations
from experiments.toy.tokenizer import SPECIAL_TOKENS, WORDS, build_tokenizer
from outcome_rl.toy.task import DialectTask


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    """Return the tokenizer as users get it, saved and loaded."""
    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(max_length=64).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def test_prompts_have_eight_tokens_and_responses_thirteen(tokenizer):
    for prompt, response in islice(demonstrations(DialectTask(), seed=0), 200):
        prompt_ids = tokenizer(prompt).input_ids
        response_ids = tokenizer(f"{response} {tokenizer.eos_token}", add_special_tokens=False).input_ids
        assert (len(prompt_ids), len(response_ids)) == (8, 13)
        assert prompt_ids[0] == tokenizer.bos_token_id
        assert response_ids[-1] == tokenizer.eos_token_id
        assert tokenizer.unk_token_id not in prompt_ids + response_ids
        assert tokenizer.decode(prompt_ids, skip_special_tokens=True) == prompt
        assert tokenizer.decode(response_ids, skip_special_tokens=True) == response


@given(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=30))
def test_words_round_trip(words: list[str]):
    tokenizer = build_tokenizer(max_length=64)
    ids = tokenizer(" ".join(words), add_special_tokens=False).input_ids
    assert len(ids) == len(words)
    assert tokenizer.decode(ids) == " ".join(words)


def test_ids_are_those_the_policy_was_trained_with(tokenizer):
    assert len(tokenizer) == len(set(SPECIAL_TOKENS + WORDS)) == 101
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (
        0,
        1,
        2,
        3,
    )
    assert tokenizer("D07 17 @ 5 # 3 =>").input_ids == [1, 64, 21, 81, 9, 82, 7, 89]


@given(text=st.text(max_size=200))
def test_any_text_can_be_encoded(text: str):
    tokenizer = build_tokenizer(max_length=64)
    ids = tokenizer(text).input_ids
    assert ids[0] == tokenizer.bos_token_id
    assert all(0 <= index < 101 for index in ids)


def test_unknown_words_become_unk_and_offsets_point_into_the_text(tokenizer):
    text = r"Compute $x^2$ when 7 \boxed{ 12 }"
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    assert tokenizer.convert_ids_to_tokens(encoded.input_ids) == ["<unk>"] * 3 + ["7", r"\boxed{", "12", "}"]
    assert [text[start:end] for start, end in encoded.offset_mapping] == text.split(" ")


def test_batches_are_padded_on_the_left(tokenizer):
    batch = tokenizer(["D07 17 @ 5 # 3 =>", "17"], padding=True)
    assert batch.input_ids[1] == [0] * 6 + [1, 21]
    assert batch.attention_mask[1] == [0] * 6 + [1, 1]
