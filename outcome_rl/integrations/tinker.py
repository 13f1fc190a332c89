"""Training data for the Tinker API: advantages and bonuses of a scored batch, one number per sampled token.

    scored = explorer.score(question_ids, responses, golds)
    training_client.forward_backward(training_data(scored, prompts, sequences, tokenizer), "importance_sampling")

Thinking Machines, SkyRL and others serve the API. `examples/tinker_loop.py` is a complete loop.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outcome_rl.exploration.scored import Scored
from outcome_rl.integrations.adapter import check_mask_mode
from outcome_rl.outcomes.answer_mask import Tokenizer

if TYPE_CHECKING:
    from tinker import Datum, ModelInput, SampledSequence


def training_data(
    scored: Scored, prompts: "Sequence[ModelInput]", sequences: "Sequence[SampledSequence]", tokenizer: Tokenizer
) -> "list[Datum]":
    """Return a `Datum` for every response that moves the policy, for the losses that read `advantages`.

    The losses are `importance_sampling`, `ppo` and `cispo`, sums over tokens: a response whose advantage is 0 on every
    token adds nothing and is left out. `scored.select` splits a batch where data of some rows are needed.

    Args:
        scored: result of `Explorer.score` for the N responses.
        prompts: N prompts; the responses of a group have equal prompts.
        sequences: N sampled sequences with `logprobs`. The responses that were scored must be their texts, by
            `outcome_rl.outcomes.answer_mask.decode_completion`.
        tokenizer: Hugging Face tokenizer of the policy, which finds the tokens of the answers.

    Returns:
        Data with `target_tokens`, `logprobs` and `advantages`, 0 on the prompt's tokens. No gradient passes through.

    Raises:
        ValueError: the lengths differ, a sequence has no log-probabilities, an answer is not in the text of its
            sequence, or `answer_mask_mode="all"`: in a sum without a denominator it would be "policy".
    """
    from tinker import Datum, EncodedTextChunk

    check_mask_mode(scored.answer_mask_mode, "Tinker")
    mask_NT = scored.answer_mask(tokenizer, [sequence.tokens for sequence in sequences])
    rows = zip(prompts, sequences, scored.token_advantages(mask_NT).tolist(), strict=True)
    data = []
    for i, (prompt, sequence, advantages) in enumerate(rows):
        tokens, logprobs = sequence.tokens, sequence.logprobs
        if logprobs is None or len(logprobs) != len(tokens):
            raise ValueError(
                f"sequences[{i}].logprobs must hold one log-probability per token, {len(tokens)}; got "
                f"{None if logprobs is None else len(logprobs)}. Pass the sequences that sampling_client.sample returns"
            )
        if not any(advantages[: len(tokens)]):
            continue
        before = [0] * (prompt.length - 1)  # the last token of the prompt predicts the first of the response
        columns = {"target_tokens": tokens, "logprobs": logprobs, "advantages": advantages[: len(tokens)]}
        data.append(
            Datum(
                model_input=prompt.append(EncodedTextChunk(tokens=tokens[:-1])) if tokens[1:] else prompt,
                loss_fn_inputs={name: before + values for name, values in columns.items()},
            )
        )
    return data
