import re

import msgspec
import pytest

from ckaudit.reports import render
from ckaudit.reports.view import View
from tests.reports.sample import HOSTILE, SAMPLES, clean, empty, gated, ill, invalid

COMMAND = re.compile(r"^::(?P<level>error|warning|notice) (?P<fields>(?:[a-z]+=[^:,]*,?)+)::(?P<message>.*)$")


def unescape(text):
    for code, letter in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(code, letter)
    return text


def commands(report, view=None):
    """Read workflow commands back as the runner does."""
    for line in render(report, "github", view or View()).splitlines():
        match = COMMAND.match(line)
        fields = dict(field.split("=", 1) for field in match["fields"].split(","))
        yield match["level"], {key: unescape(value) for key, value in fields.items()}, unescape(match["message"])


@pytest.mark.parametrize("name", SAMPLES)
def test_every_line_is_one_command(name):
    text = render(SAMPLES[name](), "github")
    assert text.endswith("\n")
    assert all(COMMAND.match(line) for line in text.splitlines())


def test_a_violation_points_at_its_line():
    level, fields, message = next(commands(invalid(), View(base="runs/broken")))
    assert level == "error"
    assert fields == {"file": "runs/broken/analysis_checkpoint_step_00000100.json", "line": "41", "title": "SCH004 wrong_type"}
    assert message.splitlines()[0] == "norm is a string"
    assert 'found: "abc"' in message.splitlines()


def test_commas_colons_and_percent_signs_come_back():
    files = [fields.get("file") for _, fields, _ in commands(invalid())]
    assert "odd,name:100%\\x0a.json" in files


def test_a_name_cannot_start_a_command_of_its_own():
    report = invalid()
    findings = [msgspec.structs.replace(report.findings[0], message=f"x\n::error::y {HOSTILE}")]
    assert len(list(commands(msgspec.structs.replace(report, findings=findings)))) == 1


def test_diagnoses_come_first_and_levels_follow_severity():
    levels = [(level, fields["title"]) for level, fields, _ in commands(ill())]
    assert levels[0] == ("error", "learning_rate_too_high since step 476 (likely, 0.87)")
    assert levels[-2] == ("warning", "ATT003 uniform_head")
    assert levels[-1] == ("notice", "ckaudit 0.1.0: how it was judged")


@pytest.mark.parametrize("report", [clean(), empty()])
def test_without_findings_a_notice_gives_the_verdict(report):
    ((level, _, message),) = commands(report)
    assert level == "notice"
    assert message.startswith(report.verdict)


def test_what_is_accepted_is_one_notice_and_no_annotation_of_its_own():
    found = list(commands(gated()))
    assert [level for level, _, _ in found] == ["error", "error", "notice"]
    assert "2 findings do not count: 1 accepted in known.json, 1 ignored by ckaudit.toml" in found[-1][2].splitlines()
    assert "1 entry of known.json matches nothing any more: GRAD001 blocks.0; --update-baseline drops it" in found[-1][2]


def test_a_finding_without_a_file_says_when():
    assert [message.splitlines()[-1] for _, fields, message in commands(ill()) if fields["title"].startswith("LOSS002")] == [
        "when: steps 480-600, worst 520"
    ]
