"""Time in proportion to the text: patterns do not backtrack without a bound, and random families of texts grow so."""

import importlib.util
import os
import random
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest
from growing_texts import exponent, families

from outcome_rl import extract_answer

LONGEST = 1 << 16


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("patterns", Path(__file__).parents[2] / "docs" / "patterns.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "pattern",
    [r"\s*\s*x", r"(?:a+)+b", r"[a-z]+\w*;", r"(?:x|\d+)*9", r"a+(?=b)", r"(?i)A+a", r"\w+\b", r".*?\)"],
)
def test_the_checker_finds_a_planted_pattern(checker: ModuleType, pattern: str) -> None:
    assert checker.faults_of(pattern)


@pytest.mark.parametrize("pattern", [r"\s*+\s*+x", r"(?>a+)b", r"\([^)]*\)", r"[a-z]+[0-9]", r"\s{0,9}x", r"a{1,30}a"])
def test_the_checker_lets_bounded_patterns_pass(checker: ModuleType, pattern: str) -> None:
    assert not checker.faults_of(pattern)


@pytest.mark.parametrize(("folder", "least"), [("extraction", 40), ("canonical", 80)])
def test_every_pattern_is_read_and_has_no_fault(checker: ModuleType, folder: str, least: int) -> None:
    patterns = list(checker.all_patterns(folder))
    assert len(patterns) >= least
    for name, pattern in patterns:
        assert not checker.faults_of(pattern.pattern, pattern.flags, folder == "canonical"), name


@pytest.mark.nightly
def test_random_families_grow_in_proportion() -> None:
    seed = int(os.environ.get("GROWTH_SEED", random.SystemRandom().randrange(1 << 30)))
    for family in islice(families(random.Random(seed)), 2000):
        growth, seconds = exponent(extract_answer, family, LONGEST)
        assert growth <= 1.3 or seconds < 0.02, (seed, family, growth, seconds)
        assert seconds < 0.1, (seed, family, seconds)  # of CPU
