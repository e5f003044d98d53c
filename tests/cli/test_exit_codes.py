import msgspec
import pytest

from ckaudit.cli.run import run
from ckaudit.contract.schema.report import Check
from ckaudit.errors import UnreadableError
from tests.reports.sample import clean, empty, ill, invalid

BROKEN = Check(code="X001", name="x", title="x", severity="sev2", outcome="error", detail="KeyError")


def only(severity):
    report = ill()
    kept = [msgspec.structs.replace(report.findings[0], severity=severity)]
    return msgspec.structs.replace(report, findings=kept, severity=severity)


@pytest.mark.parametrize(
    ("report", "options", "code"),
    [
        (clean(), [], 0),
        (ill(), [], 1),
        (invalid(), [], 1),
        (only("sev2"), [], 0),
        (only("sev2"), ["--fail-on", "sev2"], 1),
        (only("note"), ["--fail-on", "sev2"], 0),
        (only("note"), ["--fail-on", "note"], 1),
        (only("sev1"), ["--fail-on", "sev0"], 0),
        (only("sev0"), ["--fail-on", "sev0"], 1),
        (empty(), [], 2),
        (empty(), ["--allow-empty"], 0),
        (msgspec.structs.replace(clean(), files=0), [], 2),
        (msgspec.structs.replace(clean(), checks=[]), [], 2),
        (msgspec.structs.replace(clean(), checks=[*clean().checks, BROKEN]), ["--allow-empty"], 2),
        (msgspec.structs.replace(ill(), checks=[BROKEN]), [], 1),
    ],
)
def test_the_code_follows_the_gravest_finding_and_what_could_be_judged(engine, capfd, report, options, code):
    engine(report)
    assert run(["triage", "run", *options]) == code
    assert ("error: " in capfd.readouterr().err) is (code == 2)


@pytest.mark.parametrize(
    ("options", "code"),
    [([], 0), (["--strict"], 1), (["--strict", "--fail-on", "sev0"], 1), (["--fail-on", "note", "--strict"], 1)],
)
def test_strict_fails_on_sev2(engine, options, code):
    engine(only("sev2"))
    assert run(["validate", "run", *options]) == code


def test_strict_keeps_a_stricter_limit(engine):
    engine(only("note"))
    assert run(["validate", "run", "--strict", "--fail-on", "note"]) == 1


def test_a_report_is_printed_even_where_nothing_was_judged(engine, capfd):
    engine(empty())
    assert run(["triage", "run"]) == 2
    out, err = capfd.readouterr()
    assert "NOT JUDGED" in out
    assert err == (
        "error: nothing could be judged: all 4 checks were skipped\nhint: --allow-empty accepts a report that judged nothing\n"
    )


def test_what_cannot_be_read_is_one_line_with_a_hint(engine, capfd):
    engine(error=UnreadableError("run\x1b[31m is not there", hint="check the name"))
    assert run(["validate", "run"]) == 2
    assert capfd.readouterr() == ("", "error: run\\x1b[31m is not there\nhint: check the name\n")


def test_a_bug_names_itself_without_a_traceback(engine, capfd, monkeypatch):
    monkeypatch.delenv("CKAUDIT_TRACEBACK", raising=False)
    engine(error=KeyError("loss"))
    assert run(["triage", "run"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: this is a bug in ckaudit: KeyError: 'loss'\nhint: ")
    assert "Traceback" not in err


def test_a_bug_shows_its_traceback_on_request(engine, capfd, monkeypatch):
    monkeypatch.setenv("CKAUDIT_TRACEBACK", "1")
    engine(error=KeyError("loss"))
    assert run(["triage", "run"]) == 2
    assert "Traceback" in capfd.readouterr().err


def test_ctrl_c_is_one_line(engine, capfd):
    engine(error=KeyboardInterrupt())
    assert run(["triage", "run"]) == 130
    assert capfd.readouterr() == ("", "interrupted\n")


def test_an_error_on_the_way_out_after_ctrl_c_is_no_bug(engine, capfd):
    error, between = AttributeError("module has no attribute 'lib'"), ImportError("half imported")
    error.__context__, between.__context__ = between, KeyboardInterrupt()
    engine(error=error)
    assert run(["triage", "run"]) == 130
    assert capfd.readouterr() == ("", "interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["triag"], "No such command 'triag'. Did you mean 'triage'?"),
        (["triage"], "Missing argument 'RUN'"),
        (["validate", "x", "--nope"], "No such option: --nope"),
        (["validate", "x", "--format", "jsn"], "unknown format 'jsn'\nhint: did you mean json?"),
        (["validate", "x", "--format", "?"], "hint: choose from terminal, json, sarif, junit, github, markdown"),
        (["validate", "x", "--fail-on", "bad"], "unknown severity 'bad'"),
        (["validate", "x", "-o", "no/such/folder/x.json"], "there is no folder no/such/folder"),
        (["triage", "x", "--step", "ten"], "--step 'ten' is not a whole number"),
        (["triage", "x", "--step=-1"], "--step -1 is negative\nhint: steps start at 0"),
        (["triage", "x", "--map", "loss"], "--map 'loss' is not NAME=COLUMN"),
        (["triage", "x", "--map", "a=b", "--map", "a=c"], "--map names 'a' twice"),
    ],
)
def test_a_wrong_command_line_is_refused_before_any_work(engine, capfd, arguments, message):
    calls = engine(clean())
    assert run(arguments) == 2
    out, err = capfd.readouterr()
    assert (out, calls) == ("", [])
    assert err.startswith("error: ")
    assert message in err
    assert "hint: " in err


def test_without_a_command_the_help_is_shown_and_nothing_passes(capfd):
    assert run([]) == 2
    assert capfd.readouterr().out.startswith("Usage: ckaudit")
