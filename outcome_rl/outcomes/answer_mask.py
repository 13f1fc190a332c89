"""Mask of the completion tokens that spell the final answer.

The mask is computed from the sampled token ids, never from re-tokenised text: for each edge of the answer's character
span, a binary search over prefixes of the ids finds the token whose text crosses the edge. It requires only `decode` of
the tokenizer, so it works for byte-level, byte-fallback, Metaspace and word-level vocabularies. Answers are near the
end, so the search decodes only the last tokens, if their text is the end of the full text.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from outcome_rl.outcomes.outcome import Outcome

if TYPE_CHECKING:
    from torch import Tensor


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that answer masks use."""

    def decode(self, token_ids: Any, *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> Any: ...


def decode_completion(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Decode a completion into the text from which the answers for `answer_mask` are extracted.

    Special tokens are skipped, spaces are kept, and invalid UTF-8 (a character that the length limit cut off) becomes
    U+FFFD.
    """
    # The text is the same as that of `tokenizer.decode`, whose wrapper takes longer than decoding a short completion.
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        text: str = backend.decode(ids, skip_special_tokens=True)
    else:
        text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def answer_mask(
    tokenizer: Tokenizer, completion_ids: "Sequence[Sequence[int]] | Tensor", answers: Sequence[Outcome | None]
) -> "Tensor":
    """Mark the tokens of each completion that overlap its final answer.

    A token that straddles an edge of the answer is part of it, and so are all tokens of a character whose bytes are
    spread over several tokens. Special tokens, padding included, have no text: they are marked only between tokens of
    the answer.

    Args:
        tokenizer: a Hugging Face tokenizer.
        completion_ids: the sampled ids without the prompt, a tensor (N, T) or N sequences of up to T ids.
        answers: N answers, extracted from `decode_completion(tokenizer, completion_ids[i])`; None, and an
            outcome without a span, marks no token.

    Returns:
        (N, T) bool, True on answer tokens, on the device of `completion_ids` (for sequences: on the CPU).

    Raises:
        TypeError: the first argument is no tokenizer.
        ValueError: if the number of answers differs from that of the completions, or an answer is not in its
            completion's text at its span.
    """
    import torch

    if not hasattr(tokenizer, "decode"):
        raise TypeError(f"tokenizer must be a Hugging Face tokenizer; got {type(tokenizer).__name__}. It comes first")
    device = completion_ids.device if isinstance(completion_ids, torch.Tensor) else torch.device("cpu")
    rows = completion_ids.tolist() if isinstance(completion_ids, torch.Tensor) else completion_ids
    spans = answer_spans(tokenizer, rows, answers)
    mask = torch.zeros(len(rows), max(map(len, rows), default=0), dtype=torch.bool, device="cpu")
    for i, (first, stop) in enumerate(spans):
        mask[i, first:stop] = True
    return mask.to(device)


def answer_spans(
    tokenizer: Tokenizer,
    completion_ids: Sequence[Sequence[int]],
    answers: Sequence[Outcome | None],
    texts: Sequence[str] | None = None,
) -> list[tuple[int, int]]:
    """Find the range of tokens of each completion that overlap its final answer; see `answer_mask`.

    Args:
        tokenizer, completion_ids, answers: as for `answer_mask`, with N sequences of ids.
        texts: the decoded completions where they are at hand, so that they are not decoded again.

    Returns:
        N pairs: the first token of the answer, and the first after it; (0, 0) where no token is marked.

    Raises:
        ValueError: as `answer_mask`.
    """
    if len(completion_ids) != len(answers):
        raise ValueError(
            f"answers must have one entry per completion; got {len(answers)} for {len(completion_ids)} completions."
        )
    known: dict[tuple[Outcome, tuple[int, ...]], tuple[int, int]] = {}  # samples of one question are often identical
    spans = []
    for i, (ids, answer) in enumerate(zip(completion_ids, answers, strict=True)):
        span = (0, 0)
        if answer is not None and answer.start < answer.end:
            key = (answer, tuple(ids))
            if key not in known:
                text = decode_completion(tokenizer, ids) if texts is None else texts[i]
                known[key] = _token_span(tokenizer, list(ids), text, answer, row=i)
            span = known[key]
        spans.append(span)
    return spans


def _token_span(tokenizer: Tokenizer, ids: list[int], text: str, answer: Outcome, row: int) -> tuple[int, int]:
    """Return the range of tokens that overlap the answer's characters."""
    is_inside = answer.end <= len(text)
    if not is_inside or (answer.source and text[answer.start : answer.end] != answer.text):  # as extraction found it
        raise ValueError(
            f"answers[{row}] must be {answer.text!r} at characters [{answer.start}, {answer.end}) of its completion; "
            f"got {text[answer.start : answer.end]!r} there. Extract it from decode_completion(tokenizer, ids)."
        )
    for count in (32, 256, len(ids)):
        tail = _Tail(tokenizer, ids, text, max(len(ids) - count, 0))
        first, _ = tail.settled(tail.count_up_to(answer.start))
        # The token at the cut may lose the leading space that it has in the full text: it must precede the answer.
        if first > tail.cut or tail.cut == 0:
            break
    return first, tail.count_up_to(answer.end - 1, first) + 1


class _Tail:
    """Map from token counts to character positions in the text of a completion, from a cut onwards, decoded lazily."""

    def __init__(self, tokenizer: Tokenizer, ids: list[int], text: str, cut: int) -> None:
        self._tokenizer, self._ids, self._text = tokenizer, ids, text
        tail = decode_completion(tokenizer, ids[cut:]) if cut else text
        # A cut inside a multi-byte character gives a leading U+FFFD; an empty tail has no position in the text.
        step = 1
        while cut and not (text.endswith(tail) and tail and tail[0] != "\ufffd"):
            cut, step = max(cut - step, 0), 2 * step  # a response may be thousands of invalid bytes
            tail = decode_completion(tokenizer, ids[cut:]) if cut else text
        self.cut = cut
        self._start = len(text) - len(tail)
        self._known: dict[int, tuple[int, int]] = {cut: (cut, self._start), len(ids): (len(ids), len(text))}

    def count_up_to(self, position: int, low: int = 0) -> int:
        """Return the largest number of tokens whose settled text ends at or before a character position."""
        low = max(low, self.cut)
        counts = range(low + 1, len(self._ids) + 1)
        return low + bisect_right(counts, position, key=lambda count: self.settled(count)[1])

    def settled(self, count: int) -> tuple[int, int]:
        """Return the longest prefix of at most `count` tokens whose text later tokens do not change.

        A prefix that ends inside a multi-byte character decodes to U+FFFD there, which the next bytes replace; a
        byte-fallback decoder even changes the complete characters of the same run of bytes. Text lengths of settled
        prefixes grow with the token count, as the binary search requires.

        Returns:
            The number of tokens of the prefix, and the number of characters of the text up to its end.
        """
        passed = []
        while count not in self._known:
            passed.append(count)
            piece = decode_completion(self._tokenizer, self._ids[self.cut : count])
            if self._text.startswith(piece, self._start):
                self._known[count] = (count, self._start + len(piece))
            else:
                count -= 1
        self._known.update(dict.fromkeys(passed, self._known[count]))
        return self._known[count]
