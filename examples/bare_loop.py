"""Outcome-based exploration in a training loop of your own: one `Explorer`, no trainer, no configuration file.

    python examples/bare_loop.py --steps 20

The policy and the questions are the toy ones, so this runs anywhere in about a minute; for a real model and real
problems, change the lines that load them.
"""

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from outcome_rl import Explorer, linear_policy_loss
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
explorer = Explorer(bonus="batch", coef=0.2)  # counts and outcome classes, kept over training

for step in range(steps):
    # Sample n responses to each question.
    batch = [problems[i] for i in torch.randperm(len(problems))[:num_questions]]
    prompts = tokenizer([row["problem"] for row in batch], return_tensors="pt", padding=True)
    with torch.no_grad():
        sampling = {"do_sample": True, "top_k": 0}  # from the whole vocabulary, which the loss is over
        sequences = model.generate(**prompts, **sampling, max_new_tokens=max_tokens, num_return_sequences=n)
    prompt_length = prompts.input_ids.shape[1]
    completion_ids = sequences[:, prompt_length:]  # (N, T)
    ended = (completion_ids == tokenizer.eos_token_id).long()
    mask = ended.cumsum(dim=1) - ended == 0  # (N, T), the end token included
    responses = [decode_completion(tokenizer, ids) for ids in completion_ids.tolist()]

    # From responses to advantages, with a bonus that lowers answers repeated within a group.
    rows = [row for row in batch for _ in range(n)]
    scored = explorer.score([row["id"] for row in rows], responses, [row["answer"] for row in rows])

    # From advantages to the loss, straight from hidden states; the answer's own tokens get no policy gradient.
    attention_mask = torch.cat([prompts.attention_mask.repeat_interleave(n, dim=0), mask.long()], dim=1)
    position_ids = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
    hidden = model.model(sequences, attention_mask, position_ids).last_hidden_state[:, prompt_length - 1 : -1]
    loss = linear_policy_loss(
        hidden,
        model.lm_head.weight,
        completion_ids,
        scored.advantages,
        mask,
        bonuses=scored.bonuses,
        answer_mask=scored.answer_mask(tokenizer, completion_ids),
    ).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(
        f"step {step + 1}: {scored.metrics['outcomes/correct_rate']:.3f} correct, "
        f"{scored.metrics['exploration/new_outcome_rate']:.3f} new answers, "
        f"{scored.metrics['exploration/solved_fraction']:.3f} of the questions solved so far"
    )
