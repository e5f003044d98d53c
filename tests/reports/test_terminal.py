import io
import re

import msgspec
import pytest
from rich.cells import cell_len

from ckaudit.contract.schema.report import Chart, Check
from ckaudit.reports import render
from ckaudit.reports.terminal.screen_text import terminal_view, wrap
from ckaudit.reports.view import View
from tests.loops import for_each
from tests.reports.sample import HOSTILE, SAMPLES, clean, empty, gated, ill, invalid

ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Screen(io.StringIO):
    def __init__(self, encoding, *, terminal):
        super().__init__()
        self.name_of_encoding, self.terminal = encoding, terminal

    @property
    def encoding(self):
        return self.name_of_encoding

    def isatty(self):
        return self.terminal


@for_each("width", [40, 60, 79, 80, 100, 132, 200])
@for_each("name", SAMPLES)
def test_no_line_is_wider_than_the_screen(name, width):
    for line in render(SAMPLES[name](), "terminal", View(width=width)).splitlines():
        place = re.match(r"\S+\.jsonl?(:\d+)?( |$)", line)  # stays whole, to be clicked on
        assert cell_len(line) <= width or place, line


@pytest.mark.parametrize("name", SAMPLES)
def test_colours_change_nothing_but_colours(name):
    report = SAMPLES[name]()
    coloured = render(report, "terminal", View(width=80, colour=True))
    assert coloured != ANSI.sub("", coloured)
    assert ANSI.sub("", coloured) == render(report, "terminal", View(width=80))


@pytest.mark.parametrize("name", SAMPLES)
def test_an_ascii_screen_gets_only_ascii(name):
    assert render(SAMPLES[name](), "terminal", View(width=80, unicode=False)).isascii()


def test_the_first_line_is_the_verdict():
    first = render(ill(), "terminal", View(width=120)).splitlines()[0]
    assert first == "SEV1  The learning rate is too high for this stage, since step 476, in blocks.3.attention.query.weight"


@pytest.mark.parametrize("width", [60, 120])
def test_every_part_of_a_diagnosis_is_on_the_screen(width):
    report = ill()
    seen = " ".join(render(report, "terminal", View(width=width, verbose=True)).split())
    for diagnosis in report.diagnoses:
        assert diagnosis.runbook in seen
        assert all(one.sentence in seen for one in diagnosis.evidence)
    assert "likely, 0.87" in seen
    assert report.notes[0] in seen


def test_a_table_on_a_wide_screen_and_paragraphs_on_a_narrow_one():
    assert "what you see" in render(ill(), "terminal", View(width=80))
    narrow = render(ill(), "terminal", View(width=79))
    assert "what you see" not in narrow
    assert "   try      Halve the peak" in narrow


def test_the_number_of_a_cause_never_stands_alone_before_a_long_name():
    first, *others = ill().diagnoses
    long = msgspec.structs.replace(first, symptom="blocks.2.attn_norm.weight is trainable")
    lines = render(msgspec.structs.replace(ill(), diagnoses=[long, *others]), "terminal", View(width=100)).splitlines()
    row = next(index for index, line in enumerate(lines) if line.startswith("1."))
    assert lines[row].startswith("1. blocks.2.attn_norm.   ")
    assert lines[row + 1].startswith("   weight is trainable")


def test_evidence_for_and_against_is_told_apart():
    lines = render(ill(), "terminal", View(width=120)).splitlines()
    assert "   + the gradient norm rose 60x four steps before the loss (+1.5, GRAD002)" in lines
    assert "   - the loss does not fall when the rate decays (-0.6)" in lines


def test_explained_findings_appear_only_when_everything_is_asked_for():
    assert "LOSS002  loss_divergence" not in render(ill(), "terminal")
    assert "LOSS002  loss_divergence" in render(ill(), "terminal", View(verbose=True))


def test_places_with_one_name_are_listed_only_when_everything_is_asked_for():
    spike = next(each for each in ill().findings if each.also)
    report = msgspec.structs.replace(
        ill(), diagnoses=[], findings=[msgspec.structs.replace(spike, group="all 5 parts of blocks")]
    )
    text = render(report, "terminal", View(width=120))
    assert "exploding_gradient, step 476, all 5 parts of blocks\n" in text
    assert "also" not in text
    assert "also blocks.2.attention.query.weight, blocks.1, blocks.0, head" in render(report, "terminal", View(verbose=True))


def test_what_was_skipped_is_one_line_per_reason_and_a_list_on_request():
    text = render(ill(), "terminal", View(width=120))
    assert "Not judged: 5 of 9 checks\n  not recorded    3 checks\n" in text
    assert "most wait for optimizer_groups (2 checks); ckaudit coverage says which line to add first" in text
    assert "OPT002" not in text
    assert "OPT002" in render(ill(), "terminal", View(width=120, verbose=True))


def test_clean_broken_and_not_judged_have_different_badges():
    broken = Check(code="X001", name="x", title="x", severity="sev2", outcome="error", detail="KeyError: 'loss'")
    reports = [clean(), empty(), msgspec.structs.replace(clean(), checks=[broken])]
    texts = [render(report, "terminal") for report in reports]
    assert [text.split("  ")[0] for text in texts] == ["OK", "NOT JUDGED", "BROKEN"]
    assert "X001 broke: KeyError: 'loss'" in texts[2]


@pytest.mark.parametrize("kind", ["terminal", "json", "sarif", "junit", "github", "markdown"])
def test_hostile_names_steer_no_terminal(kind):
    text = render(invalid(), kind)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]", text)
    text.encode()


def test_hostile_names_are_legible():
    text = render(invalid(), "terminal")
    assert r"w\x1b[31m]0;x\x07[red]<b>|`@all\u202e\u2028\x9b\ud800" in text
    assert HOSTILE not in text


def test_a_violation_is_one_line_in_a_pipe_and_keeps_its_place_whole_on_a_narrow_screen():
    lines = render(invalid(), "terminal", View(base="runs/broken")).splitlines()
    assert (
        "runs/broken/analysis_checkpoint_step_00000100.json:41 /gradients/blocks.0.weight/norm  SCH004  norm is a string" in lines
    )
    assert '    expected a number, "NaN", "Infinity" or "-Infinity"' in lines
    narrow = render(invalid(), "terminal", View(width=60, base="runs/broken"))
    head = "runs/broken/analysis_checkpoint_step_00000100.json:41 /gradients/blocks.0.weight/norm"
    assert f"{head}\n    SCH004  norm is a string\n    expected" in narrow


def test_many_equal_violations_are_cut_and_counted_unless_asked_for():
    report = invalid()
    many = msgspec.structs.replace(report, findings=report.findings[:1] * 1000 + report.findings[1:2])
    text = render(many, "terminal")
    assert text.count("SCH004  norm is") == 20
    assert "... and 980 more SCH004 (-v shows all)" in text
    assert "sev1  SCH004  wrong_type     1,000" in text
    assert render(many, "terminal", View(verbose=True)).count("SCH004  norm is") == 1000


def test_quiet_leaves_only_findings():
    assert "read" not in render(invalid(), "terminal", View(quiet=True))
    fine = msgspec.structs.replace(clean(), command="validate")
    assert render(fine, "terminal", View(quiet=True)) == ""
    assert render(fine, "terminal") == "OK  Nothing found in 3 checks. (40 files read)\n"


@pytest.mark.parametrize(
    ("environ", "terminal", "colour"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colour_follows_the_terminal_and_the_two_conventions(environ, terminal, colour):
    assert terminal_view(View(), Screen("utf-8", terminal=terminal), environ).colour is colour


@pytest.mark.parametrize(
    ("encoding", "unicode"), [("UTF-8", True), ("utf8", True), ("ascii", False), ("cp1252", False), (None, False)]
)
def test_characters_follow_the_encoding(encoding, unicode):
    assert terminal_view(View(), Screen(encoding, terminal=False), {}).unicode is unicode


def test_width_is_asked_of_the_terminal_and_overridden_by_columns():
    assert terminal_view(View(), Screen("utf-8", terminal=False), {}).width is None
    assert terminal_view(View(), Screen("utf-8", terminal=False), {"COLUMNS": "61"}).width == 61
    assert terminal_view(View(), Screen("utf-8", terminal=True), {"COLUMNS": "junk"}).width > 0


def test_names_break_after_their_dots_and_wide_letters_count_twice():
    assert wrap("see model.layers.31.attention now", 12) == ["see model.", "layers.31.", "attention", "now"]
    assert wrap("層層層層", 4) == ["層層", "層層"]
    assert wrap("", 10) == [""]


@pytest.mark.parametrize("width", range(40, 81, 5))
def test_verdict_notes_and_the_titles_of_pictures_are_cut_to_the_screen(width):
    report = msgspec.structs.replace(
        clean(), command="validate", verdict="of three hundred and twenty files " * 4, notes=["a long note, with many words " * 5]
    )
    picture = Chart(
        name="gradient_waterfall",
        title="Does the gradient reach every block? (step 300)",
        unit="1",
        labels=["block.0", "block.1"],
        values=[1.0, 0.1],
    )
    for drawn in (report, msgspec.structs.replace(ill(), charts=[picture])):
        text = render(drawn, "terminal", View(width=width))
        assert max(map(cell_len, text.splitlines())) <= width
        seen = " ".join(text.split())
        assert "with many words a long note" in seen or picture.title in seen


def test_the_counts_of_long_names_are_cut_to_the_screen():
    report = invalid()
    longest = msgspec.structs.replace(report.findings[0], name="relative_contradicts_norm", file="a.json", pointer=None)
    for width in (40, 50, 100):
        text = render(msgspec.structs.replace(report, findings=[longest] * 7), "terminal", View(width=width))
        assert max(map(cell_len, text.splitlines())) <= width
        assert "relative_contradicts_norm7" in "".join(text.split())


def test_what_does_not_count_is_listed_with_the_reason_where_everything_is_asked_for():
    text = render(gated(), "terminal", View(verbose=True, width=120))
    assert "does not count: accepted in known.json" in text
    assert "does not count: head 2 is spare" in text
    assert "does not count" not in render(gated(), "terminal", View(width=120))


def test_a_validation_lists_what_does_not_count_too():
    report = msgspec.structs.replace(gated(), command="validate")
    text = render(report, "terminal", View(verbose=True))
    assert "does not count: blocks.3.attention.query.weight  GRAD002  accepted in known.json" in text.splitlines()
    assert "note: 2 findings do not count: 1 accepted in known.json, 1 ignored by ckaudit.toml" in text.splitlines()
