"""Traces of verifiers, as its train client records them, with the tokens of the toy policy."""

from typing import Any

import verifiers.v1 as vf
from transformers import AutoTokenizer
from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.types import AssistantMessage, UserMessage

from outcome_rl.toy import policy_dir

TOKENIZER = AutoTokenizer.from_pretrained(policy_dir())


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
    trace = vf.Trace[Data](task=seed, agent=vf.AgentInfo(config=config), ok=True)
    for _ in range(turns - 1):
        turn(trace, "D12 39 ^ 9 =>", "39 9")
    turn(trace, "D12 39 ^ 9 =>", "39 9" if answer is None else f"\\boxed{{ {answer} }}")
    trace.record_reward("correct", reward)
    return trace
