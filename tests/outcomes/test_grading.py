"""The one grader: its verdicts, and one answer from all that use it."""

import json
from pathlib import Path

import pytest
from graded_pairs import PAIRS

from outcome_rl import OutcomeMatcher, extract_answer
from outcome_rl.isolation.grader import MathVerifyPool
from outcome_rl.math_verify import accuracy_reward, parse, verify
from outcome_rl.outcomes.grading import grade, shared_pool

LABELLED = Path(__file__).resolve().parents[3] / "shared" / "data" / "pairs"


def boxed(text: str) -> str:
    return rf"\boxed{{{text}}}" if extract_answer(text) is None else text


def test_pairs_with_and_without_tolerance() -> None:
    pairs = [(gold, answer) for gold, answer, _, _ in PAIRS]
    for tolerant in (True, False):
        expected = {(gold, answer): loose if tolerant else strict for gold, answer, loose, strict in PAIRS}
        verdicts = grade(pairs, shared_pool(), tolerant=tolerant)
        assert {pair: verdict == "equal" for pair, verdict in verdicts.items()} == expected


@pytest.mark.parametrize("tolerant", [True, False])
def test_the_matcher_and_the_drop_in_agree(tolerant: bool) -> None:
    golds, answers = [pair[0] for pair in PAIRS], [boxed(pair[1]) for pair in PAIRS]
    for path in sorted(LABELLED.glob("*.jsonl")):  # none where ../shared is absent
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        golds += [row["gold"] for row in rows if "gold" in row]
        answers += [boxed(row["pred"]) for row in rows if "gold" in row]
    with OutcomeMatcher(tolerant=tolerant) as matcher:
        correct = matcher.classify([str(i) for i in range(len(golds))], answers, golds).correct.tolist()
    rewards = accuracy_reward(answers, golds, tolerant=tolerant)
    assert [bool(reward) for reward in rewards] == correct
    parsed = [(parse(gold), parse(answer)) for gold, answer in zip(golds, answers, strict=True)]
    assert [verify(*pair, tolerant=tolerant) for pair in parsed] == correct


def test_only_pairs_that_no_rule_reads_are_voted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(MathVerifyPool, "vote", lambda self, pairs, *_, **__: asked.extend(pairs) or [])
    grade([(gold, answer) for gold, answer, _, _ in PAIRS], shared_pool(), tolerant=True)
    assert asked == []
