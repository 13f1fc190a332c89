"""Advantages on verifiers' own traces, read back through verifiers' own `Branch`."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import verifiers.v1 as vf
from transformers import AutoTokenizer
from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.types import AssistantMessage, UserMessage

from outcome_rl import NO_ANSWER, Explorer, OutcomeCounts, group_advantages, outcome_key, question_key
from outcome_rl.integrations.verifiers import assign_advantages
from outcome_rl.toy import policy_dir

TOKENIZER = AutoTokenizer.from_pretrained(policy_dir())
ANSWERS = {"27": ["27", "5", "5"], "3": ["1", None, "3"]}  # gold -> answers


class Data(vf.TaskData):
    answer: str | None = None


class Sum(vf.Task[Data]):
    pass


def turn(trace: vf.Trace[Data], question: str, reply: str) -> None:
    """Add a user's turn and a sampled one, whose first token is scaffold, as the train client commits them."""
    asked, said = (TOKENIZER(text, add_special_tokens=False).input_ids for text in (question, reply))
    parent = len(trace.nodes) - 1 if trace.nodes else None
    message = UserMessage(content=question)
    trace.nodes.append(vf.MessageNode(parent=parent, message=message, token_ids=asked, mask=[False] * len(asked)))
    trace.nodes.append(
        vf.MessageNode(
            parent=len(trace.nodes) - 1,
            sampled=True,
            message=AssistantMessage(content=reply),
            token_ids=[TOKENIZER.bos_token_id, *said, TOKENIZER.eos_token_id],
            mask=[False] + [True] * (len(said) + 1),
            logprobs=[-0.5] * (len(said) + 1),
        )
    )


def make(gold: str | None, answer: str | None, reward: float, turns: int = 1, **changes: Any) -> vf.Trace[Data]:
    task = Sum(Data(prompt=f"sum {gold}", answer=gold))
    config = WireAgentConfig.model_construct()
    seed = vf.TraceTask[Data](type="Sum", data=task.data, **({"key": task.key} | changes))
    trace = vf.Trace[Data](task=seed, agent=vf.AgentInfo(config=config))
    for _ in range(turns - 1):
        turn(trace, "D12 39 ^ 9 =>", "39 9")
    turn(trace, "D12 39 ^ 9 =>", "39" if answer is None else f"\\boxed{{ {answer} }}")
    trace.record_reward("correct", reward)
    return trace


def step(turns: int = 1) -> list[vf.Trace[Data]]:
    return [make(gold, answer, float(answer == gold), turns) for gold, row in ANSWERS.items() for answer in row]


def expected(traces: Sequence[vf.Trace[Data]], counts: OutcomeCounts, **settings: Any) -> torch.Tensor:
    """(6,) what `group_advantages` says of the two groups, counting them."""
    keys = torch.tensor([[NO_ANSWER if a is None else outcome_key(a) for a in row] for row in ANSWERS.values()])
    correct = torch.tensor([[a == gold for a in row] for gold, row in ANSWERS.items()])
    questions = torch.tensor([question_key(str(traces[i].task.key)) for i in (0, 3)])
    groups = group_advantages(correct.float(), questions, keys, counts, correct=correct, **settings)
    return (groups.advantages + groups.bonuses).flatten()


@pytest.mark.parametrize("mode", ["policy", "bonus", "none"])
@pytest.mark.parametrize("turns", [1, 2])
def test_branches_read_advantages_bonuses_and_answer_mask(mode: str, turns: int) -> None:
    explorer, counts = Explorer(bonus="ucb_con", coef=0.2, answer_mask_mode=mode), OutcomeCounts()
    for _ in range(2):
        traces = step(turns)
        rewards = expected(traces, OutcomeCounts(), bonus="none")
        wanted = expected(traces, counts, bonus="ucb_con", coef=0.2)
        scored = assign_advantages(traces, explorer, TOKENIZER)
        for i, trace in enumerate(traces):
            (branch,) = trace.branches
            found = torch.tensor(branch.advantages)
            row = torch.where(torch.tensor(branch.sampled_mask), wanted[i], torch.zeros(()))
            if scored.answers[i] is not None and mode != "none":  # ... \boxed{ ANSWER } <eos>
                row[-3] = rewards[i] if mode == "bonus" else 0.0
            torch.testing.assert_close(found, row)
    assert scored.metrics["exploration/new_outcome_rate"] == 0
    assert len(explorer.solved) == 2


def test_traces_survive_verifiers_records() -> None:
    """A trainer in another process reads the advantages from the wire."""
    traces = step()
    assign_advantages(traces, Explorer(bonus="ucb", coef=1.0, answer_mask_mode="none"), TOKENIZER)
    read = vf.WireTrace.model_validate(traces[0].to_record(float_decimals=None))
    assert read.branches[0].advantages == traces[0].branches[0].advantages
    again = assign_advantages([read], Explorer(), TOKENIZER)  # task fields are extras of the wire's type
    assert again.correct.tolist() == [True]


def test_rewards_tell_which_are_correct_where_there_is_no_gold() -> None:
    traces = [make(None, "5", 1.0), make(None, "6", 0.0)]
    scored = assign_advantages(traces, Explorer(), TOKENIZER, answer_key=None)
    assert scored.correct.tolist() == [True, False]


def test_errors_name_what_to_change() -> None:
    explorer = Explorer()
    with pytest.raises(ValueError, match=r"answer_key='gold' must be a field .*; Sum has \['answer', .*'prompt'"):
        assign_advantages(step(), explorer, TOKENIZER, answer_key="gold")
    with pytest.raises(ValueError, match=r"traces\[0\] must have a task key"):
        assign_advantages([make("3", "3", 1.0, key=None)], explorer, TOKENIZER)
    untokenised = make("3", "3", 1.0)
    for node in untokenised.nodes:
        node.token_ids, node.mask = [], []
    with pytest.raises(ValueError, match=r"traces\[0\] must have .* 0 sampled nodes .* train client"):
        assign_advantages([untokenised], explorer, TOKENIZER)
    with pytest.raises(ValueError, match="answer_mask_mode must be 'policy', 'bonus' or 'none' for verifiers"):
        assign_advantages(step(), Explorer(answer_mask_mode="all"), TOKENIZER)
    assert len(explorer.counts) == 0
