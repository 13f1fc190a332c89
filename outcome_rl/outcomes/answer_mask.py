"""Which tokens of a completion spell its final answer.

The mask is taken from the ids that were sampled, never from re-tokenised text: for each edge of the answer's character
span, a binary search over prefixes of the ids finds the token whose text crosses it. This needs nothing from the
tokenizer but `decode`, so it holds for byte-level, byte-fallback, Metaspace and word-level vocabularies alike. Answers
stand near the end, so the search decodes pieces of the last tokens only, if these alone decode to the end of the text.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from outcome_rl.outcomes.extraction import Answer

if TYPE_CHECKING:
    from torch import Tensor


class Tokenizer(Protocol):
    """What is needed of a Hugging Face tokenizer."""

    def decode(self, token_ids: Any, *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> Any: ...


def decode_completion(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return the text of a completion, as answers must be extracted from it for `answer_mask` to fit.

    Special tokens are left out, spaces stay as they are, and bytes that are no UTF-8 (a character that the length limit
    cut off) appear as U+FFFD.
    """
    # The same text as by `tokenizer.decode`, whose wrapper takes longer than the decoding of a short completion.
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        text: str = backend.decode(ids, skip_special_tokens=True)
    else:
        text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def answer_mask(
    tokenizer: Tokenizer, completion_ids: "Sequence[Sequence[int]] | Tensor", answers: Sequence[Answer | None]
) -> "Tensor":
    """Return which tokens of each completion overlap its final answer.

    A token that straddles an edge of the answer belongs to it, and so do all tokens of a character whose bytes are
    spread over several. Special tokens (padding among them) have no text, and belong to it only between its tokens.

    Args:
        tokenizer: a Hugging Face tokenizer.
        completion_ids: the sampled ids without the prompt, (B, T) or B sequences of up to T ids.
        answers: B answers, extracted from `decode_completion(tokenizer, completion_ids[i])`; None masks nothing.

    Returns:
        (B, T) bool, True on answer tokens, on the device of `completion_ids` (a sequence: on the CPU).

    Raises:
        ValueError: if there is not one answer per completion, or an answer does not stand in its completion's text.
    """
    import torch

    device = completion_ids.device if isinstance(completion_ids, torch.Tensor) else torch.device("cpu")
    rows = completion_ids.tolist() if isinstance(completion_ids, torch.Tensor) else list(map(list, completion_ids))
    if len(rows) != len(answers):
        raise ValueError(f"answers must have one entry per completion; got {len(answers)} for {len(rows)} completions.")
    mask = torch.zeros(len(rows), max(map(len, rows), default=0), dtype=torch.bool)
    spans: dict[tuple[Answer, tuple[int, ...]], tuple[int, int]] = {}  # samples of one question often repeat
    for i, (ids, answer) in enumerate(zip(rows, answers, strict=True)):
        if answer is not None:
            known = (answer, tuple(ids))
            if known not in spans:
                spans[known] = _token_span(tokenizer, ids, answer, row=i)
            first, stop = spans[known]
            mask[i, first:stop] = True
    return mask.to(device)


def _token_span(tokenizer: Tokenizer, ids: list[int], answer: Answer, row: int) -> tuple[int, int]:
    """The range of tokens that overlap the answer's characters."""
    text = decode_completion(tokenizer, ids)
    if text[answer.start : answer.end] != answer.text or not answer.text:
        raise ValueError(
            f"answers[{row}] must be {answer.text!r} at characters [{answer.start}, {answer.end}) of its completion; "
            f"there stands {text[answer.start : answer.end]!r}. Extract it from decode_completion(tokenizer, ids)."
        )
    for count in (32, 256, len(ids)):
        tail = _Tail(tokenizer, ids, text, max(len(ids) - count, 0))
        first, _ = tail.settled(tail.count_up_to(answer.start))
        # The token at the cut may lose a space in front that it has in the whole: it must stand before the answer.
        if first > tail.cut or tail.cut == 0:
            break
    return first, tail.count_up_to(answer.end - 1, first) + 1


class _Tail:
    """Character positions at which the prefixes of a completion end that are longer than a cut, decoded when needed."""

    def __init__(self, tokenizer: Tokenizer, ids: list[int], text: str, cut: int) -> None:
        self._tokenizer, self._ids, self._text = tokenizer, ids, text
        tail = decode_completion(tokenizer, ids[cut:]) if cut else text
        # A cut among the bytes of a character leaves a U+FFFD in front, and no text at all says nothing.
        while cut and not (text.endswith(tail) and tail and tail[0] != "\ufffd"):
            cut -= 1
            tail = decode_completion(tokenizer, ids[cut:]) if cut else text
        self.cut = cut
        self._start = len(text) - len(tail)
        self._known: dict[int, tuple[int, int]] = {cut: (cut, self._start), len(ids): (len(ids), len(text))}

    def count_up_to(self, position: int, low: int = 0) -> int:
        """The largest number of tokens that settle no more than the characters before a position."""
        low, high = max(low, self.cut), len(self._ids)
        while low < high:
            middle = (low + high + 1) // 2
            if self.settled(middle)[1] <= position:
                low = middle
            else:
                high = middle - 1
        return low

    def settled(self, count: int) -> tuple[int, int]:
        """The longest prefix of at most `count` tokens whose text later tokens leave unchanged: its tokens, characters.

        A prefix that ends among the bytes of a character decodes to U+FFFD there, which the next bytes replace; a
        byte-fallback decoder even takes back the complete characters of the same run of bytes. Over settled prefixes
        the length grows with the count, as the binary search needs.
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
