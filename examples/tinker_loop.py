"""Outcome-based exploration over the Tinker API: sample, score, train, with the model on a server.

    python examples/tinker_loop.py --base-url http://localhost:8000 --steps 20

The questions and the default model are the toy ones, for a server of one's own such as SkyRL's, which runs on a CPU.
For Thinking Machines' service leave out --base-url, name one of its models, and change the lines that load questions.
"""

import argparse
from typing import Any

import tinker
from transformers import AutoTokenizer

from outcome_rl import Explorer
from outcome_rl.integrations.tinker import training_data
from outcome_rl.outcomes.answer_mask import decode_completion
from outcome_rl.toy import DialectTask, policy_dir


def ready(client: Any) -> Any:
    """Return a client: SkyRL's SDK (up to 0.24) makes one, today's a future of it."""
    return client.result() if hasattr(client, "result") else client


parser = argparse.ArgumentParser()
parser.add_argument("--base-url")
parser.add_argument("--model", default=str(policy_dir()))
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--questions", type=int, default=16, help="questions of a step")
arguments = parser.parse_args()
n, num_questions = 8, arguments.questions

tokenizer = AutoTokenizer.from_pretrained(arguments.model)
problems = DialectTask().problems("train")
explorer = Explorer()  # MaxRL with the Batch bonus; its counts are kept over training
service = tinker.ServiceClient(base_url=arguments.base_url)
trainer = ready(service.create_lora_training_client(base_model=arguments.model, rank=8))
sampling = tinker.SamplingParams(max_tokens=16, temperature=1.0, stop=[tokenizer.eos_token_id])

for step in range(arguments.steps):
    # Sample n responses to each question.
    batch = [problems[(step * num_questions + i) % len(problems)] for i in range(num_questions)]
    prompts = [tinker.ModelInput.from_ints(tokenizer(row["problem"]).input_ids) for row in batch]
    sampler = ready(trainer.save_weights_and_get_sampling_client())
    futures = [sampler.sample(prompt, num_samples=n, sampling_params=sampling) for prompt in prompts]
    sequences = [sequence for future in futures for sequence in future.result().sequences]
    responses = [decode_completion(tokenizer, sequence.tokens) for sequence in sequences]

    # From responses to advantages, with a bonus that lowers answers repeated within a group.
    rows = [row for row in batch for _ in range(n)]
    scored = explorer.score([row["id"] for row in rows], responses, [row["answer"] for row in rows])

    # From advantages to a step of the server's optimizer; the answer's own tokens get no policy gradient.
    data = training_data(scored, [prompt for prompt in prompts for _ in range(n)], sequences, tokenizer)
    if data:
        losses = trainer.forward_backward(data, "importance_sampling")
        update = trainer.optim_step(tinker.AdamParams(learning_rate=2e-3))
        losses.result(), update.result()
    print(
        f"step {step + 1}: {scored.metrics['outcomes/correct_rate']:.3f} correct, "
        f"{scored.metrics['exploration/new_outcome_rate']:.3f} new answers, {len(data)} of {len(rows)} trained",
        flush=True,
    )
