"""Outcomes of responses: extraction, canonical keys, equivalence classes and answer masks.

The modules form a pipeline; each can also be used separately:

- `extraction` finds the final answer of a response and its character span;
- `keys` turns an answer into a canonical text and a stable 64-bit key; `canonical` is the algebra behind it;
- `matcher` classifies batches of answers and compares them with the gold answers;
- `grader` runs math-verify in the worker processes of `worker_pool`, for the few answers that no rule reads;
- `refutation` rejects an equality of math-verify that texts or values contradict;
- `tolerance` compares generously with the gold answer, on request;
- `functions` lets users define outcomes of any kind, `isolated` runs such a function in processes that can be killed,
  `function_matcher` classifies with it, and `ready` has ready-made ones;
- `answer_mask` maps the characters of an answer to the tokens of the completion.

`docs/outcomes.md` lists the rules, with examples.
"""
