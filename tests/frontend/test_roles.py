"""A message in a role that its chat template leaves out is refused, and one in a role that it renders passes."""

from pathlib import Path

import pytest

from penstock.frontend.text.chat import render
from penstock.protocol.errors import RequestError

FILES = Path(__file__).parents[1] / "builders" / "chat_templates"
TEMPLATES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FILES.glob("*.jinja"))}
USER = {"role": "user", "content": "Which animal?"}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
OWN = (
    "{% for m in messages if m.role in ('user', 'critic') %}"
    "[{{ m.role }}:{{ m.content | upper }}]{% endfor %}"
)
FIRST_PART = "{% for m in messages %}{% if m.role != 'usr' %}{{ m.content[0].text }}{% endif %}{% endfor %}"
STRICT = "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('No such role') }}{% endif %}{% endfor %}"


@pytest.mark.parametrize("role", ["usr", "ipython", "observation", "critic", "User", "<role>"])
@pytest.mark.parametrize("family", TEMPLATES)
def test_a_message_is_in_the_prompt_or_the_conversation_is_refused(family, role):
    try:
        text = render(TEMPLATES[family], [USER, {"role": role, "content": "The blue whale."}], special_tokens=TOKENS)
    except RequestError:
        return
    assert "The blue whale." in text


@pytest.mark.parametrize(
    "role, meant", [("usr", "user"), ("User", "user"), ("asistant", "assistant"), ("system ", "system")]
)
def test_the_role_that_was_meant_is_named(role, meant):
    message = {"role": role, "content": "one"}
    with pytest.raises(RequestError, match=f"knows no role '{role}': .* left out. Did you mean {meant}\\?"):
        render(TEMPLATES["qwen3"], [USER, message])
    with pytest.raises(RequestError, match=f"refuses this conversation: No such role. Did you mean {meant}\\?"):
        render(STRICT, [message])


def test_a_role_of_the_templates_own_passes_and_another_beside_it_does_not():
    critic = {"role": "critic", "content": "one"}
    assert render(OWN, [USER, critic]) == "[user:WHICH ANIMAL?][critic:ONE]"
    with pytest.raises(RequestError, match="no role 'observer': what such a message says would be left out.$"):
        render(OWN, [USER, critic, {**critic, "role": "observer"}])


def test_what_a_message_says_may_be_short_or_stand_elsewhere():
    with pytest.raises(RequestError, match="no role 'usr'"):
        render(OWN, [USER, {"role": "usr", "content": "a"}])


def test_a_message_in_parts_is_tried_in_parts():
    parts = [{"type": "text", "text": "one"}]
    assert render(FIRST_PART, [{"role": "critic", "content": parts}]) == "one"
    with pytest.raises(RequestError, match="no role 'usr'"):
        render(FIRST_PART, [{"role": "critic", "content": parts}, {"role": "usr", "content": parts}])


@pytest.mark.parametrize("role", ["tool", "function", "developer"])
def test_usual_roles_pass_also_where_a_template_leaves_them_out(role):
    assert render(OWN, [USER, {"role": role, "content": "one"}]) == "[user:WHICH ANIMAL?]"


def test_a_template_that_reads_what_such_a_message_says_is_believed():
    template = "{% for m in messages %}{{ raise_exception('odd') if 'probe' in m.content else m.content }}{% endfor %}"
    assert render(template, [{"role": "critic", "content": "one"}]) == "one"
