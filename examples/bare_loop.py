"""Outcome-based exploration in a training loop of your own: no trainer, no configuration, three calls of outcome_rl.

    python examples/bare_loop.py --steps 20

The policy and the questions are the toy ones, so this runs anywhere in about a minute; a real model and real
problems change the two `load` lines.
"""

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import outcome_rl
from outcome_rl.outcomes.answer_mask import decode_completion
from outcome_rl.toy import DialectTask, policy_dir

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
steps = parser.parse_args().steps
num_questions, n, max_tokens = 32, 8, 16
torch.manual_seed(0)

model = AutoModelForCausalLM.from_pretrained(policy_dir()).eval()
tokenizer = AutoTokenizer.from_pretrained(policy_dir())  # pads on the left
problems = DialectTask().problems("train")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)

matcher = outcome_rl.OutcomeMatcher()
counts = outcome_rl.OutcomeCounts(rule=outcome_rl.OUTCOME_RULE)

for step in range(steps):
    batch = [problems[i] for i in torch.randperm(len(problems))[:num_questions]]
    prompts = tokenizer([row["problem"] for row in batch], return_tensors="pt", padding=True)
    with torch.no_grad():
        sequences = model.generate(**prompts, do_sample=True, max_new_tokens=max_tokens, num_return_sequences=n)
    completion_ids = sequences[:, prompts.input_ids.shape[1] :]  # (B * n, T)
    ended = (completion_ids == tokenizer.eos_token_id).long()
    mask = ended.cumsum(dim=1) - ended == 0  # (B * n, T), the end token included
    texts = [decode_completion(tokenizer, ids) for ids in completion_ids.tolist()]

    # 1. Texts to outcomes: which answers are the same, and which are correct.
    outcomes = matcher.classify(
        [row["id"] for row in batch for _ in range(n)], texts, [row["answer"] for row in batch for _ in range(n)]
    )
    # 2. Outcomes to advantages: normalised rewards, and a bonus for answers rarely seen before.
    group = outcome_rl.group_advantages(
        rewards=torch.from_numpy(outcomes.correct).float().view(num_questions, n),
        question_keys=torch.tensor([outcome_rl.question_key(row["id"]) for row in batch]),
        outcome_keys=torch.from_numpy(outcomes.keys).view(num_questions, n),
        counts=counts,
        bonus="ucb_con",
        coef=0.2,
    )
    # 3. Advantages to loss, straight from hidden states; the answer's own tokens get no policy gradient.
    attention_mask = torch.cat([prompts.attention_mask.repeat_interleave(n, dim=0), mask.long()], dim=1)
    hidden = model.model(
        input_ids=sequences,
        attention_mask=attention_mask,
        position_ids=(attention_mask.cumsum(dim=1) - 1).clamp(min=0),
    ).last_hidden_state[:, prompts.input_ids.shape[1] - 1 : -1]
    output = outcome_rl.linear_policy_loss(
        hidden,
        model.lm_head.weight,
        completion_ids,
        group.advantages.flatten(),
        mask,
        bonuses=group.bonuses.flatten(),
        answer_mask=outcome_rl.answer_mask(tokenizer, completion_ids, outcomes.answers),
    )
    optimizer.zero_grad()
    output.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"step {step + 1}: reward {outcomes.correct.mean():.3f}, {len(counts)} outcomes counted")
