"""Outcomes that the caller names: keys in, keys out."""

from typing import Any

import numpy as np

from outcome_rl.outcomes.batch import Batch
from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl.outcomes.kinds import OutcomeKind, Outcomes
from outcome_rl.outcomes.outcome import Outcome


class GivenMatcher(OutcomeKind):
    """Take the integers that the caller gives, `Batch.outcome_keys`, as outcomes; 0 is no answer."""

    rule = "given/2"
    needs_keys = True

    def _classify(self, batch: Batch, *_: Any) -> Outcomes:
        """Return the keys of N responses, of which none is correct: pass `Batch.correct`.

        Raises:
            ValueError: there are golds, or the keys are not N integers.
        """
        if batch.golds is not None:
            raise ValueError("golds cannot be compared with given outcomes; pass golds=None and correct")
        given = getattr(batch.outcome_keys, "cpu", lambda: batch.outcome_keys)()
        keys = np.asarray(given, None if len(batch) else np.int64)  # a rank without responses
        if keys.shape != (len(batch),) or keys.dtype.kind not in "iu":
            raise ValueError(
                f"outcome_keys must be {len(batch)} integers, one per response; got {keys.dtype} of shape {keys.shape}"
            )
        answers = [Outcome(str(key)) if key != NO_ANSWER else None for key in keys.tolist()]
        return Outcomes(keys.astype(np.int64), np.zeros(len(keys), np.bool_), answers)
