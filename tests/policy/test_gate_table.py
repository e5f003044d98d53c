"""The table [gate] of a policy: what it says, and every way to write it wrongly."""

import pytest

from ckaudit.errors import UsageError
from ckaudit.policy.policy_schema import GateTerms
from ckaudit.policy.read import read_policy


def read(tmp_path, text, name="ckaudit.toml"):
    path = tmp_path / name
    path.write_text(text)
    return read_policy(path, name).gate


def test_it_says_what_a_canary_is_held_to(tmp_path):
    terms = read(
        tmp_path,
        '[gate]\nquestions = ["loss", "speed"]\nallow = { speed = "10%", final_loss = 0.02 }\n'
        'incomparable = "fail"\nexpect = ["config.learning_rate"]\n',
    )
    assert terms == GateTerms(
        questions=("loss", "speed"),
        allow={"speed": "10%", "final_loss": 0.02},
        incomparable="fail",
        expect=["config.learning_rate"],
    )
    assert terms.counts() == ["final_loss", "smoothed_loss", "loss_at_equal_tokens", "speed"]
    assert (terms.allowance("speed"), terms.allowance("final_loss"), terms.allowance("smoothed_loss")) == ("10%", 0.02, None)


def test_a_policy_without_it_says_nothing(tmp_path):
    assert read(tmp_path, 'fail_on = "sev2"') is None
    assert read(tmp_path, "[gate]") == GateTerms()


def test_it_stands_in_a_pyproject_too(tmp_path):
    assert read(tmp_path, '[tool.ckaudit.gate]\nquestions = ["health"]', "pyproject.toml") == GateTerms(questions=("health",))


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("gate = 3", "gate is not a table", "questions"),
        ("[gate]\nquestion = []", "unknown key gate.question", "questions"),
        ('[gate]\nquestions = ["los"]', "gate.questions: no question is called 'los'", "loss"),
        ('[gate.allow]\nsped = "10%"', "gate.allow: no question is called 'sped'", "speed"),
        ('[gate.allow]\nspeed = "ten"', "gate.allow.speed: expected a share", ""),
        ("[gate.allow]\nspeed = -1", "gate.allow.speed: expected a share", ""),
        ("[gate.allow]\nspeed = true", "gate.allow", ""),
        ('[gate]\nincomparable = "ignore"', "gate.incomparable: expected error, fail or pass", ""),
        ('[gate]\nexpect = "config.*"', "gate.expect: expected a list", ""),
    ],
)
def test_what_is_wrong_names_its_place_and_the_nearest_word(tmp_path, text, message, hint):
    with pytest.raises(UsageError) as raised:
        read(tmp_path, text)
    assert message in str(raised.value)
    assert str(raised.value).startswith("ckaudit.toml: ")
    assert hint in raised.value.hint
