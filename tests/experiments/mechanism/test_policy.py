"""The tabular policy: questions as arrays, exact chances, and the step along a gradient."""

import itertools

import numpy as np
import pytest

from experiments.mechanism.policy import (
    O,
    Policy,
    Rates,
    Table,
    read_questions,
    rule_table,
    success,
    token_entropy,
    without_sharing,
)
from outcome_rl.toy.task import DIALECTS, OPERATIONS, SYMBOLS, DialectTask

TASK = DialectTask(3)
ROWS = TASK.problems("train", 40)
QUESTIONS = read_questions(ROWS)


def random_policy(runs: int = 2) -> Policy:
    rng = np.random.default_rng(0)
    policy = Policy(rule_table(TASK), [Rates(1.0, 2.0, 3.0)] * runs)
    policy.own += rng.normal(size=policy.own.shape)
    policy.shared += rng.normal(size=policy.shared.shape)
    policy.sharpness += 0.3 * rng.normal(size=policy.sharpness.shape)
    return policy


def test_the_true_operations_give_the_reference_answer() -> None:
    names = list(OPERATIONS)
    for row, contexts, answers, gold in zip(ROWS, *QUESTIONS, strict=True):
        dialect, _, symbol1, _, symbol2, *_ = row["problem"].split()
        true = [names.index(TASK.rules[dialect, symbol].operation) for symbol in (symbol1, symbol2)]
        assert str(answers[tuple(true)]) == row["answer"] == str(gold)
        expected = [DIALECTS.index(dialect) * len(SYMBOLS) + SYMBOLS.index(symbol) for symbol in (symbol1, symbol2)]
        assert contexts.tolist() == expected


def test_training_starts_from_the_demonstrators_beliefs() -> None:
    probabilities = Policy(rule_table(TASK), [Rates(1.0, 1.0, 1.0)]).probabilities()[0]
    for row, place in enumerate(itertools.product(DIALECTS, SYMBOLS)):
        beliefs = [TASK.rules[place].beliefs[name] for name in OPERATIONS]
        np.testing.assert_allclose(probabilities[row], np.maximum(beliefs, 1e-4) / np.maximum(beliefs, 1e-4).sum())


def test_the_chance_of_success_by_enumeration() -> None:
    probabilities = random_policy().probabilities()
    found = success(probabilities, QUESTIONS)
    for run, q in itertools.product(range(2), range(len(ROWS))):
        first, second = probabilities[run][QUESTIONS.contexts[q]]
        expected = sum(
            first[a] * second[b]
            for a, b in itertools.product(range(O), repeat=2)
            if QUESTIONS.answers[q, a, b] == QUESTIONS.gold[q]
        )
        assert found[run, q] == pytest.approx(expected)


def test_entropy_of_a_uniform_row() -> None:
    uniform = np.full((1, 1, O), 1 / O)
    assert token_entropy(uniform)[0, 0] == pytest.approx(np.log(O) / 13)


@pytest.mark.parametrize("shares", [True, False])
def test_a_step_is_the_gradient_of_every_parameter(shares: bool) -> None:
    """A fixed linear function of the logits; its derivatives by finite differences."""
    table = rule_table(TASK) if shares else without_sharing(rule_table(TASK), QUESTIONS)[0]
    rng = np.random.default_rng(1)
    slope = rng.normal(size=table.log_beliefs.shape)

    def fresh() -> Policy:
        policy = Policy(Table(*table), [Rates(1.0, 1.0, 1.0)])
        state = np.random.default_rng(2)
        policy.own += state.normal(size=policy.own.shape)
        policy.shared += state.normal(size=policy.shared.shape)
        policy.sharpness += 0.2
        return policy

    moved, start = fresh(), fresh()
    moved.ascend(slope[None])
    for name in ("own", "shared", "sharpness"):
        step = getattr(moved, name) - getattr(start, name)
        for index in rng.permutation(step.size)[:20]:
            values = []
            for shift in (1e-5, -1e-5):
                policy = fresh()
                getattr(policy, name).reshape(-1)[index] += shift
                values.append(float((slope * policy.logits()[0]).sum()))
            assert step.reshape(-1)[index] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-5, abs=1e-7)


def test_without_sharing_each_step_of_a_question_has_its_own_row() -> None:
    table, questions = without_sharing(rule_table(TASK), QUESTIONS)
    assert len(set(questions.contexts.ravel().tolist())) == 2 * len(ROWS)
    np.testing.assert_allclose(
        success(Policy(table, [Rates(1, 1, 1)]).probabilities(), questions),
        success(Policy(rule_table(TASK), [Rates(1, 1, 1)]).probabilities(), QUESTIONS),
    )
