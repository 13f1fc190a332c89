"""Short fuzz of extraction and keys; `tests/helpers/fuzz_outcomes.py` runs a million cases."""

import itertools

import fuzz_outcomes
import pytest


@pytest.mark.timeout(60)  # takes two seconds, unless a text hangs
def test_generated_texts_have_keys() -> None:
    fuzz_outcomes.fuzz(cases=4000, seed=1)


def test_generated_texts_cover_all_kinds() -> None:
    texts = list(itertools.islice(fuzz_outcomes.texts(seed=1), 4000))
    assert texts == list(itertools.islice(fuzz_outcomes.texts(seed=1), 4000))
    assert any(len(text) > 50_000 for text in texts)
    canonical = [fuzz_outcomes.keys.canonical_text(text) for text in texts]
    # Some of all kinds: else the fuzz would not reach the rules that make them.
    assert {"q:", "r:", "f:", "t:", "s:", "l:", "eq"} <= {text[:2] for text in canonical}


def test_fuzz_detects_a_key_that_depends_on_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_outcomes.keys, "canonical_text", lambda text: f"q:{text}")
    with pytest.raises(AssertionError) as error:
        fuzz_outcomes.fuzz(cases=10, seed=1)
    assert "of seed 1" in error.value.__notes__[0]
