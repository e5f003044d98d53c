"""Pages say what the catalogues say, and links are those that the code has."""

import inspect
import re
from ast import literal_eval
from pathlib import Path

import pytest

import ckaudit
from ckaudit.audit.drop.guide import GUIDE, PROCEDURE
from ckaudit.audit.playbook import CONDITIONS, FIRST_LOOK, WORKFLOW
from ckaudit.causes import causes
from ckaudit.causes.shared.links import rules_reading, with_their_inputs
from ckaudit.contract.violations import KINDS
from ckaudit.errors import UsageError
from ckaudit.explain import explain, groups, is_known, known_names, refuse_unknown
from ckaudit.explain.catalogue_pages import WEIGHTS, cited_rows
from ckaudit.explain.docstring import documentation, sentences_about
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import entries
from ckaudit.questions import questions
from ckaudit.questions.question import MAP
from ckaudit.reports import render
from ckaudit.reports.formula import readable
from ckaudit.reports.view import View
from ckaudit.rules import rules
from tests.loops import for_each

ROWS = [f"M{number:02d}" for number in range(1, 68)] + [f"F{number}" for number in range(1, 17)]


def only(name, kind=None):
    """The page of a name; where a metric, a rule or a cause share it, as a symptom and its only cause may, the first."""
    pages = [page for page in explain([name]) if kind is None or page.kind == kind]
    assert len({each.kind for each in pages}) == len(pages)
    return pages[0]


@for_each("row", ROWS)
def test_a_row_of_the_lists_is_a_name(row):
    page = only(row.lower())
    assert row in page.ids
    assert page.kind == "metric"


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith("F")])
def test_each_formula_of_the_sheet_is_on_its_page(row):
    page = only(row)
    assert page.formulas
    if len([each for each in page.ids if each.startswith("F")]) > 1:
        rows = {formula.row for formula in page.formulas}
        assert row in rows


def test_the_formulas_of_the_sheet_are_right():
    assert [formula.row for formula in only("F2").formulas] == ["", "F1", "F2", "F3"]
    assert r"\log \alpha_{q,k}" in only("F9").formulas[0].tex
    assert r"L_{irregular} - L_{regular}" in only("F14").formulas[0].tex
    assert r"\Pr_q(H_q < \log 2) > 0.99" in only("F10").formulas[0].tex


def test_a_page_of_a_metric_has_definition_and_playbook():
    page = only("max_attn_logit")
    assert page.title == metrics()["max_attn_logit"].title
    assert page.facts["unit"] == "logit"
    assert page.facts["shape"].startswith("(C, H)")
    assert "Kimi K2" in page.facts["alert from"]
    assert page.importance["stage"] == {"early": "must", "steady": "must", "late": "should"}
    assert page.table()["by stage"] == "early must, steady must, late should"
    assert [section.title for section in page.sections] == ["What it is", "Why it matters", "What goes wrong", "What to do"]
    assert page.shapes.bad_values == (120, 250, 500, 850, 1100, 1150)


def test_a_metric_told_by_another_says_so():
    page = only("residual_rms_p99")
    assert page.belongs_to == "residual_rms"
    assert page.ids == ()
    assert page.sections == only("M21").sections
    assert only("M21").belongs_to == ""


@for_each("name", [name for entry in entries().values() for name in entry.covers])
def test_limits_of_another_number_do_not_stand_on_its_page(name):
    page = only(name, "metric")
    assert not {"typical", "alert", "alert from", "computed", "sampling"} & set(page.facts)
    assert (page.shapes, page.importance) == (None, {})


def test_what_is_about_another_number_stands_below_a_break():
    for text in (render([only("gradient_zero_fraction")], kind, kind="Pages") for kind in ("terminal", "markdown")):
        own, _, other = text.partition("Of gradient_norm, which this belongs to:")
        assert "Share of each tensor's gradient elements that are exactly zero" in own
        assert "What goes wrong" not in own
        assert "What goes wrong" in other
        assert "1e-10" not in text


@for_each("code", [*metrics(), *rules()])
def test_what_a_source_cites_is_explained(code):
    page = only(code, "metric" if code in metrics() else "rule")
    text = " ".join([metrics()[code].source, page.facts.get("alert from", "")] if code in metrics() else [rules()[code].doc])
    kinds = {word.partition("-")[0].rstrip("0123456789") for word in re.findall(r"\b[A-Z]{2,4}\d?-\d", text)}
    assert all(kind in page.facts["cited"] for kind in kinds)
    assert ("D4.2" in page.facts.get("cited", "")) is bool(re.search(r"\bD\d\.\d", text))


@for_each("name", causes())
def test_every_number_of_a_cause_has_a_meaning(name):
    page = only(name, "cause")
    assert all(each.meaning for each in page.thresholds)
    assert {each.name for each in page.thresholds if "log odds" in each.meaning} <= set(WEIGHTS)


def test_the_line_that_records_a_metric_is_whole():
    assert only("residual_rms_p99").line == only("residual_rms").line == 'recorder = Recorder(model, "run/")'
    page = only("spectral_norm")
    assert page.line == 'recorder = Recorder(model, "run/", spectral_norms=("*.q_proj.weight", "*.k_proj.weight"))'
    assert f"    {page.line}" in render([page], "terminal", View(width=40), kind="Pages").splitlines()


def test_names_and_numbers_of_a_page_are_those_of_its_metric():
    assert "hfu" not in only("mfu").also_called  # counts recomputed work too: another number
    assert set(only("eval_artifact_hash").shapes.bad_values) == {0, 1}
    (formula,) = only("entropy_floor").formulas
    assert readable(formula.tex, unicode=False) == "E of L = E + A x^(-alpha)"


def test_an_argument_of_a_metric_is_a_threshold_with_its_meaning():
    (beta,) = only("train_loss_ema").thresholds
    assert (beta.name, beta.default) == ("beta", "0.98")
    assert "0.95 to 0.999" in beta.meaning


@for_each("code", rules())
def test_every_threshold_of_a_rule_is_shown_with_a_sentence(code):
    rule, page = rules()[code], only(code)
    assert [each.name for each in page.thresholds] == list(rule.thresholds)
    for each in page.thresholds:
        assert literal_eval(each.default) == rule.thresholds[each.name]
        assert f"`{each.name}`" in each.meaning
        assert "##" not in each.meaning


def test_sentences_end_at_their_full_stop():
    doc = "Title.\n\n## What it checks\nOver `a` it is ill (D1.2). Over `b` it is dead.\n## Why it matters\nIt is `a`."
    assert sentences_about("a", doc) == "Over `a` it is ill (D1.2). It is `a`."
    assert sentences_about("c", doc) == ""


def test_links_follow_what_a_metric_is_made_of():
    assert with_their_inputs([metrics()["train_val_gap"]]) >= {"train_val_gap", "val_loss", "train_loss_at_evals"}
    assert {rule.code for rule in rules_reading(["train_loss_raw"])} >= {"LOSS001"}
    assert "LOSS001" not in {rule.code for rule in rules_reading(["spectral_norm"])}


@for_each("name", metrics())
def test_what_a_metric_is_made_of_reads_no_more_than_it_says(name):
    metric = metrics()[name]
    for part in metric.uses:
        assert set(metrics()[part].reads) <= set(metric.reads)


def test_rules_and_causes_name_each_other():
    page = only("GRAD003")
    assert "dead_path" in page.links["explained by causes"]
    assert "GRAD003 dead_parameter" in only("dead_path").links["explains rules"]


def test_everything_has_a_page_and_a_line():
    listed = {line.name for group in groups() for line in group.lines}
    judgements = {*causes(), *questions(), *(rule.name for rule in rules().values()), *(kind.name for kind in KINDS.values())}
    procedure = {each.name for each in (*PROCEDURE, *GUIDE, *FIRST_LOOK, *CONDITIONS, *WORKFLOW)} | {each.id for each in MAP}
    assert listed == set(entries()) | set(metrics()) | judgements | procedure | set(cited_rows().rows)
    assert {*metrics(), *rules(), *causes(), *questions(), *KINDS} <= set(known_names())
    assert all(len(explain([name])) >= 1 for name in known_names())


@pytest.mark.parametrize("row", ["SR-1", "SR-2", "SR-3", "SR-4", "ARC-1", "ARC-2", "ARC-3", "ME-1", "ME-2", "ME-3", "ME-4"])
def test_a_gate_or_a_row_of_the_guide_has_a_page_with_names_that_exist(row):
    page = only(row.lower())
    assert page.ids == (row,)
    assert page.kind == ("procedure" if row.startswith("SR") else "advice")
    linked = [name for names in page.links.values() for name in names]
    assert set(linked) <= set(known_names())
    assert all(section.text or section.items for section in page.sections)


@pytest.mark.parametrize(
    ("code", "name", "commands"),
    [
        ("DAT001", "broken_record", "ckaudit data and ckaudit probe"),
        ("DAT002", "record_not_utf8", "ckaudit data and ckaudit probe"),
        ("DAT003", "record_too_long", "ckaudit data and ckaudit probe"),
        ("DAT004", "wrong_column_type", "ckaudit data and ckaudit probe"),
        ("DAT005", "broken_parquet", "ckaudit data and ckaudit probe"),
        ("PLUG001", "broken_plugin", "ckaudit triage"),
        ("RSM009", "resume_runs_code", "ckaudit resume-check"),
        ("SCH004", "wrong_type", "ckaudit validate"),
    ],
)
def test_a_violation_says_who_finds_it(code, name, commands):
    page = only(code.lower())
    assert (page.kind, page.name, page.ids) == ("violation", name, (code,))
    assert page.facts["found by"] == commands
    assert page.sections[0].title == "What to do"
    assert only(name).ids == (code,)


def test_every_code_in_the_source_is_explained():
    used = set()
    for path in sorted(Path(ckaudit.__file__).parent.rglob("*.py")):
        used |= set(re.findall(r'"((?:DAT|DIFF|SYN|SCH|VAL|RUN|RSM|MAN|PLUG|SIB|WATCH)\d{3})"', path.read_text()))
    assert len(used) > 100
    assert used == set(KINDS)


def test_a_cause_tells_its_knob_and_prior():
    page = only("missing_warmup")
    assert page.facts["before any evidence"] == "3% (-1.5 in log odds)"  # 1 / (1 + exp(-1.4 + 2.8 + 1.35 * 1.5)) = 0.032
    assert causes()["missing_warmup"].knob in [section.text for section in page.sections]


@pytest.mark.parametrize(
    ("typed", "means"), [("M19", "max_attn_logit"), ("m19", "max_attn_logit"), ("Grad-Norm", "grad_global_norm")]
)
def test_spelling_is_forgiven(typed, means):
    assert only(typed).name == means


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("max_atn_logit", "max_attn_logit"),
        ("LOSS01", "LOSS01"),
        ("overfiting", "did you mean overfitting?"),
        ("LOSS999", "LOSS00"),
        ("grad9", "GRAD00"),
        ("zzzzzz", "ckaudit explain lists every name"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(typed, hint):
    with pytest.raises(UsageError) as caught:
        explain(["val_loss", typed])
    assert repr(typed) in str(caught.value)
    assert hint in caught.value.hint


def test_every_unknown_name_of_several_has_its_hint():
    with pytest.raises(UsageError, match="unknown names 'M99', 'overfiting'") as caught:
        refuse_unknown([name for name in ("M99", "F6", "overfiting") if not is_known(name)])
    assert "M99: did you mean" in caught.value.hint
    assert "overfiting: did you mean overfitting?" in caught.value.hint


@for_each("name", metrics())
def test_a_docstring_is_taken_apart_without_loss(name):
    function = metrics()[name].function
    told = documentation(function)
    text = inspect.cleandoc(function.__doc__)
    assert told.formulas
    assert told.details.startswith("Shape ")
    assert text.count("$$") == 2 * len(told.formulas)
    names = {
        each for each, parameter in inspect.signature(function).parameters.items() if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert names <= set(told.arguments)


@for_each("name", [*rules(), *causes(), *questions()])
def test_no_paragraph_is_longer_than_a_tired_reader_holds(name):
    longest = max((part for section in only(name).sections for part in section.paragraphs), key=lambda part: len(part.split()))
    assert len(longest.split()) <= 70, longest
