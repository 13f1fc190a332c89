"""Prompts as token ids: templates, chat templates, length limit."""

from typing import Any

import pytest
from tiny_models import byte_tokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from outcome_rl.grpo.config.schema import DataConfig
from outcome_rl.grpo.data.prompts import tokenize
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.types import Message, Problem, ProblemSet

SHORT, LONG = "D07 17 @ 5 # 3 =>", "D07 17 @ 5 # 3 => 1 2 3 4 5 6 7 8"


def problem_set(*texts: str) -> ProblemSet:
    problems = tuple(Problem(f"q{i}", text, "0") for i, text in enumerate(texts))
    return ProblemSet("set", problems, "fingerprint")


@pytest.fixture
def tokenizer(policy: Policy) -> Any:
    return policy.tokenizer


def decoded(tokenizer: Any, text: str, **settings: Any) -> str:
    prompts = tokenize(problem_set(text), tokenizer, DataConfig(**settings))
    return str(tokenizer.decode(prompts.prompts[0]))


def test_overlong_prompts_are_an_error(tokenizer: Any) -> None:
    config = DataConfig(max_prompt_length=8)
    assert len(tokenize(problem_set(SHORT), tokenizer, config).prompts[0]) == 8
    with pytest.raises(ValueError, match=r"set: 1 of 2 prompts .* = 8 tokens \(the first is 'q1' with 16\).*filter"):
        tokenize(problem_set(SHORT, LONG), tokenizer, config)


def test_overlong_prompts_can_be_left_out(tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    config = DataConfig(max_prompt_length=8, overlong_prompts="filter")
    prompts = tokenize(problem_set(LONG, SHORT, LONG), tokenizer, config)
    assert [problem.id for problem in prompts.problems] == ["q1"]
    assert len(prompts.prompts) == 1
    assert "set: left out 2 of 3 prompts" in caplog.text
    with pytest.raises(ValueError, match=r"set: every prompt is longer than data\.max_prompt_length = 8"):
        tokenize(problem_set(LONG), tokenizer, config)


def test_an_existing_chat_template_is_used(tokenizer: Any) -> None:
    assert decoded(tokenizer, SHORT) == f"<bos> {SHORT}"
    tokenizer.chat_template = (
        "{{ bos_token }} D01 {{ messages[0]['content'] }}{% if add_generation_prompt %} D02{% endif %}"
    )
    # The template writes <bos> itself; the tokenizer adds no second one.
    assert decoded(tokenizer, SHORT) == f"<bos> D01 {SHORT} D02"
    assert decoded(tokenizer, SHORT, apply_chat_template=False) == f"<bos> {SHORT}"


def test_variables_of_the_chat_template(tokenizer: Any) -> None:
    """As Qwen3's `enable_thinking`; one that the template does not read would change nothing, and is refused."""
    tokenizer.chat_template = "{{ messages[0]['content'] }}{% if enable_thinking is false %} D02{% endif %}"
    assert decoded(tokenizer, SHORT) == SHORT
    assert decoded(tokenizer, SHORT, apply_chat_template_kwargs={"enable_thinking": False}) == f"{SHORT} D02"
    with pytest.raises(ValueError, match="apply_chat_template_kwargs has thinking, which the tokenizer"):
        decoded(tokenizer, SHORT, apply_chat_template_kwargs={"thinking": False})
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="apply_chat_template_kwargs needs a chat template"):
        decoded(tokenizer, SHORT, apply_chat_template_kwargs={"enable_thinking": False})


def test_prompts_are_the_same_on_every_day(tokenizer: Any) -> None:
    """As those of Llama 3.2 and SmolLM3, whose chat templates ask for the date."""
    asks = "{% if strftime_now('%d %b %Y') == '26 Jul 2024' %} D02{% endif %}"
    tokenizer.chat_template = "{{ messages[0]['content'] }}" + asks
    assert decoded(tokenizer, SHORT) == f"{SHORT} D02"


CONVERSATION = Problem("chat", SHORT, "0", (Message("system", "D01"), Message("user", SHORT)))
SHOW_ROLES = "{% for message in messages %}[{{ message.role }}] {{ message.content }} {% endfor %}"


def rendered(problem: Problem, chat_template: str | None, **settings: Any) -> list[str]:
    """Return the texts that are tokenized, by a tokenizer with this chat template."""
    seen: list[str] = []

    class Recorder:
        eos_token_id = 2

        def __init__(self) -> None:
            self.chat_template = chat_template

        def __call__(self, texts: list[str], **options: Any) -> dict[str, list[list[int]]]:
            seen.extend(texts)
            return {"input_ids": [[1] if options else [1, 2]]}  # with an end token, which is no part of a prompt

        def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> str:
            return render_jinja_template([messages], chat_template=chat_template)[0][0]

    tokenized = tokenize(ProblemSet("set", (problem,), "fingerprint"), Recorder(), DataConfig(**settings))
    assert tokenized.prompts == ([1],)
    return seen


def test_braces_of_problem_and_template_are_left_alone() -> None:
    latex = r"\frac{1}{2} {problem} {0} {} {{x}}"
    shown = rendered(Problem("q", latex, "0"), None, prompt_template=r"{problem} \boxed{}")
    assert shown == [latex + r" \boxed{}"]


def test_conversations_go_through_the_chat_template() -> None:
    assert rendered(CONVERSATION, SHOW_ROLES) == [f"[system] D01 [user] {SHORT} "]
    earlier = Problem("chat", "c", "0", (Message("user", "a"), Message("assistant", "b"), Message("user", "c")))
    shown = rendered(earlier, SHOW_ROLES, prompt_template="{problem} D02")
    assert shown == ["[user] a [assistant] b [user] c D02 "]  # the template is around the last message alone


@pytest.mark.parametrize(
    ("chat_template", "applies", "message"),
    [
        (None, True, r"'chat' is a list of messages, .* the tokenizer has none\. Use a model"),
        (SHOW_ROLES, False, r"'chat' is a list of messages, .* data\.apply_chat_template=false\. Use"),
        ("{{ raise_exception('no system role') }}", True, r"refuses the prompt of 'chat': no system role\. Change"),
        ("{{ 1 + '1' }}", True, r"refuses the prompt of 'chat': unsupported operand"),
        ("{{ 1 }}" * 2**18, True, r"chat template is larger than 1 MiB.*data\.apply_chat_template=false"),
    ],
)
def test_conversations_that_cannot_be_rendered_are_refused(
    chat_template: str | None, applies: bool, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        rendered(CONVERSATION, chat_template, apply_chat_template=applies)


@pytest.mark.parametrize(("chat_template", "text"), [("", SHORT), (None, "")], ids=["template", "text"])
def test_prompts_without_a_token_are_refused(chat_template: str | None, text: str) -> None:
    tokenizer = byte_tokenizer(chat_template, eos_token="a")
    with pytest.raises(ValueError, match="set: the prompt of 'q' has no token"):
        tokenize(ProblemSet("set", (Problem("q", text, "0"),), "fingerprint"), tokenizer, DataConfig())
