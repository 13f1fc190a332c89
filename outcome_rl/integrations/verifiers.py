"""Plug-ins for verifiers 0.4: advantages on its traces, and its mathematical grader.

Advantages are written where verifiers' trainers read them: per sampled token, on the nodes.

    explorer = Explorer(bonus="batch", coef=0.2)
    scored = assign_advantages(traces, explorer, tokenizer)  # all traces of a step, or a group at a time

`Branch.advantages` of verifiers then aligns them with `token_ids`. A bonus recorded as a reward in `Env.finalize` would
be normalised with the rewards, and each of the env's worker processes would keep separate counts. Call this function in
the training process instead.

`verify_boxed_math_answer` replaces verifiers' function, by this library's grader; the time for which a vote of
math-verify waits behind others does not count.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from outcome_rl.exploration.explorer import Explorer
from outcome_rl.exploration.scored import Scored
from outcome_rl.files.rows import filled_text
from outcome_rl.integrations.adapter import check_mask_mode, correct_by_reward, score
from outcome_rl.isolation.grader import MAX_LOGGED_CHARS
from outcome_rl.outcomes.answer_mask import Tokenizer, decode_completion
from outcome_rl.outcomes.batch import Batch
from outcome_rl.outcomes.grading import grade, shared_pool
from outcome_rl_kernels.advantages.groups import Scale
from outcome_rl_kernels.checks import did_you_mean

if TYPE_CHECKING:
    from verifiers.v1 import MessageNode, Trace


def assign_advantages(
    traces: "Sequence[Trace]",
    explorer: Explorer,
    tokenizer: Tokenizer,
    *,
    answer_key: str | None = "answer",
    correct_reward: str = "",
    correct_threshold: float = 1.0,
    question_ids: Sequence[str] | None = None,
    scale: Scale = "std",
) -> Scored:
    """Score N traces by their root agent's last turn, count them, and set `advantages` of every sampled node.

    All sampled tokens of a trace get `advantages + bonuses`, except answer tokens, which `answer_mask_mode` decides.
    A question's traces in this call are one group, with `Trace.reward` as rewards. An outcome function gets the text of
    the last turn and the task's data.

    Args:
        traces: N traces with token ids, as verifiers' train client records them. Leave out traces of failed episodes
            (`ok`), and traces of agents that are not trained (`agent.trainable`).
        explorer: counts, kept over training.
        tokenizer: Hugging Face tokenizer of the policy.
        answer_key: field of the tasks' data that holds the gold answer; None: a single reward of 0 or 1 says which
            traces are correct, and several say nothing.
        correct_reward: name of the reward that decides which traces are correct, in place of the gold answers.
        correct_threshold: with it, a trace is correct if that reward, before its weight, is at least this.
        question_ids: N stable ids; None takes type and key of each trace's task, since keys are unique within a type.
        scale: as for `Explorer.score`.

    Returns:
        The scored batch, with `metrics`; no gradient.

    Raises:
        TypeError: a trace is something else.
        ValueError: there is no trace, or one has no task key, no sampled token or no turn of its root agent, failed, or
            lacks a reward, `correct_reward` among them; its data has no field `answer_key`, or something else than one
            answer there; or `answer_mask_mode="all"`: advantages cannot take tokens out of a denominator.
    """
    check_mask_mode(explorer.config.answer_mask_mode, "verifiers")
    answer_key = None if correct_reward else answer_key
    _check(traces, answer_key)
    sampled = [[node for node in trace.nodes if any(node.mask)] for trace in traces]
    last = [_last_turn(trace, nodes, i) for i, (trace, nodes) in enumerate(zip(traces, sampled, strict=True))]
    ids = [[token for token, chosen in zip(node.token_ids, node.mask, strict=True) if chosen] for node in last]
    scores, correct = _scores(traces, correct_reward, correct_threshold)
    batch = Batch(
        [f"{trace.task.type}:{trace.task.key}" for trace in traces] if question_ids is None else question_ids,
        [decode_completion(tokenizer, row) for row in ids],
        None if answer_key is None else [_gold(trace, answer_key) for trace in traces],
        [trace.reward for trace in traces],
        correct=correct,
        scores=scores.nan_to_num(0.0) if scores.numel() else None,
        rows=[trace.task.data.model_dump() for trace in traces],
    )
    scored = score(explorer, batch, id_source="types and keys of verifiers' tasks", scale=scale)
    rows = scored.token_advantages(scored.answer_mask(tokenizer, ids)).tolist()
    whole = (scored.advantages + scored.bonuses).tolist()
    for nodes, turn, row, advantage in zip(sampled, last, rows, whole, strict=True):
        for node in nodes:
            node.advantages = [advantage] * sum(node.mask)
        turn.advantages = row[: sum(turn.mask)]
    return scored


def _check(traces: "Sequence[Trace]", answer_key: str | None) -> None:
    """Check that traces have succeeded, with a question and all that tells which are correct."""
    if not traces:
        raise ValueError("traces must hold at least one; got none, as after a step whose episodes all failed. Skip it")
    if wrong := [trace for trace in traces if not hasattr(trace, "rewards")]:
        raise TypeError(f"traces must be Trace objects of verifiers; got {wrong[0]!r:.80}")
    are_scored = any(trace.rewards for trace in traces)
    for i, trace in enumerate(traces):
        if not trace.task.key:
            raise ValueError(f"traces[{i}] must have a task key; got {trace.task.key!r}. Leave out failed traces")
        if not trace.ok or None in trace.rewards.values() or (are_scored and not trace.rewards):
            raise ValueError(
                f"traces[{i}] must have succeeded, with all its rewards, or it would enter its group's baseline as 0; "
                f"got ok={trace.ok} and rewards {trace.rewards}. Leave out traces of episodes that are not ok"
            )
        if answer_key is not None and getattr(trace.task.data, answer_key, None) is None:
            raise ValueError(
                f"answer_key={answer_key!r} must be a field of the tasks' data with the gold answer; "
                f"{trace.task.type} has {sorted(trace.task.data.model_dump(exclude_none=True))}. Name one, or pass "
                "None to use a reward of 0 and 1"
            )


def _scores(traces: "Sequence[Trace]", reward: str, threshold: float) -> tuple[Tensor, Tensor | None]:
    """Return rewards before their weights, NaN where there is none, and which traces the named one calls correct."""
    names = sorted({name for trace in traces for name in trace.rewards})
    rows = [[getattr(trace.rewards.get(name), "score", math.nan) for name in names] for trace in traces]
    scores = torch.tensor(rows)
    if reward and reward not in names:
        raise ValueError(
            f"correct_reward must be one of the rewards {', '.join(map(repr, names)) or '(there are none)'}; got "
            f"{reward!r}{did_you_mean(reward, names)}"
        )
    return scores, correct_by_reward(scores, [names.index(reward)] if reward else [], threshold)


def _last_turn(trace: "Trace", sampled: "Sequence[MessageNode]", index: int) -> "MessageNode":
    """Return the node of the root agent's last turn: nodes of sub-agents and of rejected attempts may come after it."""
    if not sampled:
        raise ValueError(
            f"traces[{index}] must have sampled nodes with token ids; it has none. Sample with verifiers' train client"
        )
    trained = {id(node) for branch in trace.branches if branch.trainable for node in branch.nodes}
    turns = [node for node in sampled if id(node) in trained]
    if trace.root_reply is not None:
        # verifiers joins all that an agent says between two of its message ids, and some agents send none.
        texts, reply = [str(node.message.content or "").strip() for node in turns], trace.last_reply
        ends = [text for text in texts if reply.endswith(text) and bool(text) == bool(reply)]
        turns = [node for node, text in zip(turns, texts, strict=True) if text == max(ends, key=len, default=None)]
    if not turns:
        raise ValueError(
            f"traces[{index}] must have the root agent's last turn among its sampled, trainable nodes; none has the "
            f"text {trace.last_reply[:80]!r}. Leave the trace out"
        )
    return turns[-1]


def _gold(trace: "Trace", answer_key: str) -> str:
    return filled_text(getattr(trace.task.data, answer_key), answer_key, "gold answer", f"task {trace.task.key}")


def verify_boxed_math_answer(
    response: str | None, answer: str, *, tolerant: bool = True, timeout_seconds: float = 5
) -> float:
    """Return 1.0 if the last box of a response equals the gold answer, otherwise 0.0, in place of verifiers' function.

    Works in any thread.

    Args:
        response: text of the model. Only the part after `</think>` counts.
        answer: gold answer, in a box or without one.
        tolerant: as for `outcome_rl.OutcomeMatcher`.
        timeout_seconds: time limit of a vote of math-verify.

    Raises:
        RuntimeError: the comparison has no result, because a limit of time or memory was reached. verifiers then
            records an error in the trace, which trainers leave out.
    """
    from verifiers.v1.utils.score import extract_boxed_answer

    if not response or ("<think>" in response and "</think>" not in response):
        return 0.0
    prediction = extract_boxed_answer(response.rsplit("</think>", 1)[-1], strict=True)
    pair = (extract_boxed_answer(answer, strict=True) or answer).strip(), prediction.strip()
    verdict = grade([pair], shared_pool(), tolerant=tolerant, timeout_s=timeout_seconds)[pair]
    if verdict not in ("equal", "different"):
        shown = " and ".join(repr(text[:MAX_LOGGED_CHARS]) for text in pair)
        raise RuntimeError(f"math-verify has no result ({verdict}, limit {timeout_seconds} s) for {shown}")
    return float(verdict == "equal")
