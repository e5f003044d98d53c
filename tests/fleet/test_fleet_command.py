"""`ckaudit fleet` as it is typed: words, exit codes, and what a wrong word is answered with."""

from pathlib import Path

import msgspec
import pytest

from ckaudit.cli.fleet import moment
from ckaudit.cli.run import run
from ckaudit.contract.schema.fleet import Fleet
from ckaudit.errors import UsageError

FIXTURES = Path(__file__).parents[2] / "fixtures"
ILL = "step,loss\n" + "".join(f"{step},{3 / step:.4f}\n" for step in range(1, 60)) + "60,nan\n61,nan\n"
WELL = str(FIXTURES / "runs" / "healthy")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    Path("logs/ill.csv").write_text(ILL)
    Path("logs/short.csv").write_text("step,lr\n1,0.1\n2,0.1\n")
    Path("notes.txt").write_text("to be done\n")


def fleet(*words: str) -> int:
    return run(["fleet", "--jobs", "1", "--no-config", *words])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((WELL,), 0),
        (("logs/*",), 1),
        (("logs/ill.csv", "--fail-on", "sev0"), 1),
        (("logs/short.csv",), 2),
        (("logs/short.csv", "--allow-empty"), 0),
        (("logs/short.csv", "--allow-empty", "--require", "vital"), 2),
        ((WELL, "logs/none.csv"), 1),
        ((WELL, "logs/none.csv", "--fail-on", "sev0"), 0),
        (("logs/none.csv",), 2),
        (("logs/*.csv", "logs/none.csv"), 1),
    ],
)
def test_the_exit_code_is_that_of_triage_over_all_runs(capfd, words, code):
    assert fleet(*words, "-o", "data") == code
    out, err = capfd.readouterr()
    assert out.splitlines()[0].startswith(("No illness in", "1 of "))
    assert bool(err) == (code == 2)


def test_a_run_that_takes_too_long_is_told_and_audited_the_next_time(capfd, monkeypatch):
    monkeypatch.setattr("ckaudit.fleet.engines.local.LOOK_EVERY", 0.001)
    assert fleet(WELL, "--timeout", "0.002") == 2
    out, err = capfd.readouterr()
    assert "its audit took longer than 0.002 seconds, and was ended" in out
    assert "could not be audited" in err
    assert fleet(WELL) == 0


def test_json_is_the_whole_and_the_data_set_is_where_it_says(capfd):
    assert fleet("logs/*", "--format", "json", "--group-by", "source") == 1
    document = msgspec.json.decode(capfd.readouterr().out, type=Fleet)
    assert [item.run for item in document.runs] == ["logs/ill.csv", "logs/short.csv"]
    assert document.dataset == "ckaudit-fleet"
    assert {path.name for path in Path("ckaudit-fleet").iterdir()} == {"runs", "findings", "verdicts", "metrics"}
    assert document.grouped_by == ["source"]


def test_markdown_is_a_table_with_every_column(capfd):
    assert fleet("logs/*", "--format", "markdown", "-v") == 1
    lines = capfd.readouterr().out.splitlines()
    assert "| severity | run | since step | where | first cause | change first | not judged |" in lines
    row = next(line for line in lines if line.startswith("| sev0"))
    assert row.count(" | ") == 6
    assert "60" in row


def test_columns_and_policy_hold_as_for_triage(capfd):
    Path("odd.csv").write_text(
        "t,objective\n" + "".join(f"{step},{3 / step:.4f}\n" for step in range(1, 60)) + "60,nan\n61,nan\n"
    )
    assert fleet("odd.csv", "--map", "loss=objective", "--map", "step=t") == 1
    Path("ckaudit.toml").write_text('[[ignore]]\ncode = "NUM001"\nreason = "known"\n')
    capfd.readouterr()
    assert run(["fleet", "logs/ill.csv", "--jobs", "1", "--format", "json"]) != 1
    assert msgspec.json.decode(capfd.readouterr().out, type=Fleet).runs[0].severity is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no run was named"),
        (("nothing/*",), "'nothing/*' matches nothing"),
        (("*.txt",), "no run is known in what '*.txt' matches"),
        (("logs/*", "--jobs", "0"), "--jobs '0' is no number of processes"),
        (("logs/*", "--jobs", "many"), "--jobs 'many' is no number of processes"),
        (("logs/*", "--timeout", "0"), "--timeout '0' is no number of seconds"),
        (("logs/*", "--timeout", "nan"), "--timeout 'nan' is no number of seconds"),
        (("logs/*", "--timeout", "9", "--engine", "ray://nobody:1"), "--timeout is for the processes of this machine"),
        (("logs/*", "--since", "yesterday"), "--since 'yesterday' is no time"),
        (("logs/*", "--format", "pdf"), "unknown format 'pdf'"),
        (("logs/*", "--group-by", "config.nope"), "no run says its 'config.nope'"),
        (("logs/*", "-o", "logs/ill.csv"), "cannot list logs/ill.csv/runs"),
    ],
)
def test_a_wrong_word_is_answered_with_what_to_do(capfd, words, message):
    assert fleet(*words) == 2
    first, second = capfd.readouterr().err.splitlines()
    assert message in first
    assert second.startswith("hint: ")


def test_times_are_read_as_they_are_written():
    assert moment("7d", now=10 * 86400) == 3 * 86400
    assert moment("2026-01-31T12:00:00Z", now=0) == 1769860800
    with pytest.raises(UsageError, match="is no time"):
        moment("7 days", now=0)
