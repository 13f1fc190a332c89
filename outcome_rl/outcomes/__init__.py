"""From a model's text to an outcome: extraction, canonical keys, equivalence, and the answer's tokens.

The modules form a pipeline, each usable alone:

- `extraction` finds the final answer in a response and its character span;
- `keys` turns an answer into a canonical text and a stable 64-bit key, by rules for numbers (`rational`), for notations
  such as times and bases (`notations`), and for mathematics at large: `latex` makes it plain, `tokens`, `syntax` and
  `labels` read it, `arithmetic`, `functions` and `values` compute it within bounds, `realsets` and `forms` say what is
  one thing;
- `matcher` classifies batches of answers into outcome classes and judges them against golds, asking
- `grader` (math-verify behind worker processes that can be killed) only about what no rule reads;
- `spans` maps an answer's characters to the completion's tokens.

The rules are written down, with examples, in `docs/outcomes.md`.
"""
