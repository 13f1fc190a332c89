"""Tool calls: the outcome is the call in canonical JSON, so the order of its keys and its spaces do not matter.

python examples/outcomes/tool_calls.py
"""

from outcome_rl import Explorer
from outcome_rl.outcomes.ready import tool_call

gold = '{"name": "weather", "arguments": {"city": "Rome", "days": 3}}'
responses = [
    '<tool_call>\n{"name": "weather", "arguments": {"days": 3, "city": "Rome"}}\n</tool_call>',
    '<tool_call>{"arguments":{"city":"Rome","days":3},"name":"weather"}</tool_call>',
    '<tool_call>{"name": "weather", "arguments": {"city": "Roma"}}</tool_call>',
    "It is sunny in Rome.",
]

explorer = Explorer(outcome=tool_call)
scored = explorer.score(["rome"] * 4, responses, [gold] * 4)
print("correct", scored.correct.tolist())
print("seen", explorer.seen("rome"))
