"""Training data in the types of Tinker's client, and the gradient that its loss takes from them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import tinker
import torch
from tinker import Datum, ModelInput, SampledSequence
from tinker_loop import main, training_data
from transformers import AutoModelForCausalLM, AutoTokenizer

from outcome_rl import Explorer, Scored
from outcome_rl.outcomes.answer_mask import decode_completion
from outcome_rl.toy import policy_dir

TOKENIZER = AutoTokenizer.from_pretrained(policy_dir())
QUESTIONS = {"q1": ("D12 39 ^ 9 =>", "27"), "q2": ("D05 10 % 8 =>", "3")}


def batch(right: str = "3", **settings: object) -> tuple[Scored, list[ModelInput], list[SampledSequence]]:
    """Six responses to two questions, one of them a bare end of the sequence."""
    answers = {"q1": ["27", "5", "5"], "q2": [right, None, "8"]}
    ids, prompts, sequences, golds = [], [], [], []
    for name, (prompt, gold) in QUESTIONS.items():
        for answer in answers[name]:
            text = f"\\boxed{{ {answer} }}"
            tokens = [] if answer is None else TOKENIZER(text, add_special_tokens=False).input_ids
            tokens = [*tokens, TOKENIZER.eos_token_id]
            logprobs = [-0.1 * (t + 1) for t in range(len(tokens))]
            sequences.append(
                SampledSequence(
                    stop_reason="stop", sequence_id=str(len(ids)), _tokens_list=tokens, _logprobs_list=logprobs
                )
            )
            ids.append(name)
            golds.append(gold)
            prompts.append(ModelInput.from_ints(TOKENIZER(prompt).input_ids))
    texts = [decode_completion(TOKENIZER, sequence.tokens) for sequence in sequences]
    return Explorer(**settings).score(ids, texts, golds), prompts, sequences


def column(datum: Datum, name: str) -> torch.Tensor:
    return datum.loss_fn_inputs[name].to_torch()


def importance_sampling(model: Any, data: list[Datum]) -> torch.Tensor:
    total = torch.zeros((), dtype=model.dtype)
    for datum in data:
        inputs, targets = torch.tensor(datum.model_input.to_ints())[None], column(datum, "target_tokens")
        logps = model(inputs).logits[0].log_softmax(dim=-1).gather(1, targets[:, None])[:, 0]
        ratios = (logps - column(datum, "logprobs").to(model.dtype)).exp()
        total = total - (ratios * column(datum, "advantages").to(model.dtype)).sum()
    return total


@pytest.mark.parametrize("mode", ["policy", "bonus"])
def test_every_token_has_its_target_log_probability_and_advantage(mode: str) -> None:
    scored, prompts, sequences = batch(bonus="0.2*ucb_con + 0.5*batch", answer_mask_mode=mode)
    mask = scored.answer_mask(TOKENIZER, [sequence.tokens for sequence in sequences])
    found = training_data(scored, prompts, sequences, TOKENIZER)
    for datum, prompt, sequence, row in zip(found, prompts, sequences, scored.token_advantages(mask), strict=True):
        T, before = len(sequence.tokens), prompt.length - 1
        assert datum.model_input.to_ints() == [*prompt.to_ints(), *sequence.tokens[:-1]]
        expected = {"target_tokens": sequence.tokens, "logprobs": sequence.logprobs, "advantages": row[:T].tolist()}
        for name, values in expected.items():
            assert column(datum, name).tolist() == pytest.approx([0] * before + values)
    assert mask.any()


def test_responses_that_move_nothing_are_left_out() -> None:
    scored, prompts, sequences = batch(right="1", bonus="none")
    assert (scored.advantages != 0).tolist() == [True] * 3 + [False] * 3
    assert len(training_data(scored, prompts, sequences, TOKENIZER)) == 3
    with pytest.raises(ValueError, match=r"sequences\[0\]\.logprobs must hold one log-probability per token"):
        training_data(scored, prompts, [replace(one, _logprobs_list=None) for one in sequences], TOKENIZER)


class Server:
    """A service in this process with the toy policy, for the calls of the example."""

    def __init__(self, base_url: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(policy_dir())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def create_lora_training_client(self, base_model: str, rank: int) -> Any:
        return SimpleNamespace(result=lambda: self)

    def save_weights_and_get_sampling_client(self) -> Any:
        return SimpleNamespace(result=lambda: self)

    def sample(self, prompt: ModelInput, num_samples: int, sampling_params: tinker.SamplingParams) -> Any:
        ids = torch.tensor([prompt.to_ints()] * num_samples)
        sampled = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=sampling_params.max_tokens,
            do_sample=True,
            return_dict_in_generate=True,
            output_logits=True,
        )
        tokens = sampled.sequences[:, ids.shape[1] :]
        logps = torch.stack(sampled.logits, dim=1).log_softmax(dim=-1).gather(2, tokens[:, :, None])[:, :, 0]
        sequences = []
        for row, row_logps in zip(tokens.tolist(), logps.tolist(), strict=True):
            end = row.index(TOKENIZER.eos_token_id) + 1 if TOKENIZER.eos_token_id in row else len(row)
            one = SampledSequence("stop", "", _tokens_list=row[:end], _logprobs_list=row_logps[:end])
            sequences.append(one)
        return SimpleNamespace(result=lambda: SimpleNamespace(sequences=sequences))

    def forward_backward(self, data: list[Datum], loss_fn: str) -> Any:
        assert loss_fn == "importance_sampling"
        importance_sampling(self.model, data).backward()
        return SimpleNamespace(result=lambda: None)

    def optim_step(self, adam: tinker.AdamParams) -> Any:
        self.optimizer.step()
        self.optimizer.zero_grad()
        return SimpleNamespace(result=lambda: None)


def test_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tinker, "ServiceClient", Server)
    monkeypatch.setattr("sys.argv", ["tinker_loop.py", "--steps", "2", "--questions", "2"])
    torch.manual_seed(0)
    main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 1", "step 2"]
    assert all("of 16 trained" in line for line in lines)
