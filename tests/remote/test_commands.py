"""Commands and functions that are given an address: they say what they say of the folder itself, by the address."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ckaudit as package
from ckaudit.cli.app import COMMANDS, GROUPS, READ
from ckaudit.cli.run import run
from ckaudit.errors import UnreadableError
from ckaudit.remote.addresses import as_given, remember, with_addresses
from tests.forked import ckaudit
from tests.loops import check_each
from tests.object_storage import Bucket, s3, s3_server

__all__ = ["s3", "s3_server"]

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "fixtures/runs"
LATE = ("fsspec", "s3fs", "obstore", "aiohttp", "botocore", "asyncio")


@pytest.fixture
def runs(s3: Bucket) -> Bucket:
    for name in ("healthy", "lr_too_high", "nan_batch"):
        s3.put(f"runs/{name}", RUNS / name)
    return s3


def output_of(capfd, *words: str) -> tuple[int, str, str]:
    code = run([str(word) for word in words])
    out, err = capfd.readouterr()
    return code, out, err


def test_every_reading_command_says_of_an_address_what_it_says_of_the_folder(runs: Bucket, capfd, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(RUNS)
    (tmp_path / "o").mkdir()
    commands = [
        ["validate", "lr_too_high"],
        ["validate", "lr_too_high", "healthy", "-f", "json"],
        *(["triage", "nan_batch", "-f", kind] for kind in ("terminal", "json", "junit", "github", "markdown", "brief")),
        ["triage", "lr_too_high", "--questions", "1"],
        ["triage", "nan_batch/scalars.jsonl", "-f", "json"],
        ["metrics", "healthy", "loss"],
        ["metrics", "healthy", "loss", "-f", "json"],
        ["coverage", "healthy"],
        ["diff", "healthy", "lr_too_high"],
        ["diff", "healthy@last", "lr_too_high@100", "-f", "json"],
        ["gate", "lr_too_high", "--against", "healthy"],
        ["gate", "lr_too_high", "--against=healthy", "-f", "json"],
        ["hash", "healthy/run.json"],
        ["export", "healthy", "-o", f"{tmp_path}/o/healthy.csv", "--force"],
        ["convert", "healthy", "-o", f"{tmp_path}/o/converted", "--force"],
        ["report", "nan_batch", "-f", "svg", "-o", f"{tmp_path}/o/report.svg"],
    ]

    def check(words: list[str]) -> None:
        capfd.readouterr()
        there = [_at(runs, word) for word in words]
        expected, found = output_of(capfd, *words), output_of(capfd, *there)
        assert found[0] == expected[0]
        for stream in (1, 2):
            told = found[stream].replace("s3:<!-- -->//", "s3://").replace(f"s3://{runs.name}/runs/", "")
            assert told.split() == expected[stream].split(), told
            assert "cache" not in told
            assert not {name for name in ("healthy", "lr_too_high", "nan_batch") if f"runs/{name}" in told}

    check_each(commands, check, name="command")


def _at(runs: Bucket, word: str) -> str:
    option, equals, value = word.rpartition("=")
    if value.partition("/")[0].partition("@")[0] in ("healthy", "lr_too_high", "nan_batch"):
        return f"{option}{equals}{runs.uri('runs')}/{value}"
    return word


def test_siblings_are_named_by_a_pattern_of_addresses(s3: Bucket, capfd) -> None:
    for name in ("replica", "replica_2", "base", "lr_doubled"):
        s3.put(f"pairs/{name}", ROOT / "fixtures/pairs" / name)
    code, out, err = output_of(
        capfd, "triage", s3.uri("pairs/lr_doubled/"), "--like", s3.uri("pairs/*"), "-f", "json", "--fail-on", "sev0"
    )
    assert code == 0, err
    report = json.loads(out)
    assert {"SIB004", "SIB007"} <= {finding["code"] for finding in report["findings"]}
    assert "cache" not in out + err
    assert "held against 3 healthy siblings" in out


def test_files_in_findings_stay_relative_and_sarif_says_from_where(runs: Bucket, capfd, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # the cache lies below it
    uri = runs.uri("runs/bad run")
    runs.put("runs/bad run", RUNS / "healthy")
    runs.put("runs/bad run/analysis_checkpoint_step_00000100.json", b"{")
    code, out, _ = output_of(capfd, "validate", uri, "-f", "json")
    report = json.loads(out)
    assert (code, report["subject"]) == (1, uri)
    assert "analysis_checkpoint_step_00000100.json" in {finding["file"] for finding in report["findings"]}
    _, out, _ = output_of(capfd, "validate", uri, "-f", "github")
    assert f"file={uri}/analysis_checkpoint_step_00000100.json" in out.replace("%3A", ":")
    assert "cache" not in out
    _, out, _ = output_of(capfd, "validate", uri, "-f", "sarif")
    (log,) = json.loads(out)["runs"]
    (base,) = log["originalUriBaseIds"].values()
    assert base["uri"] == uri.replace(" ", "%20") + "/"
    (place, *_) = [each for result in log["results"] for each in result["locations"]]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "analysis_checkpoint_step_00000100.json"


def test_reports_name_the_address(runs: Bucket, capfd, tmp_path: Path) -> None:
    one, other = runs.uri("runs/healthy"), runs.uri("runs/nan_batch")
    for name in ("report.html", "report.svg", "report.md"):
        code, _, err = output_of(capfd, "report", one, other, "-o", tmp_path / name, "--fail-on", "sev0")
        assert code == 1, err
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "cache" + os.sep + "runs" not in text
        assert runs.name in text


def test_outputs_stay_on_this_machine(s3: Bucket, capfd) -> None:
    uri = s3.put("run", RUNS / "healthy")
    for words in (["triage", "x", "-o", uri], ["triage", "x", f"--output={uri}"], ["hash", "x", "--into", uri]):
        code, _, err = output_of(capfd, *words)
        assert (code, f"{uri} is an address" in err) == (2, True), err


def test_errors_name_the_address_and_what_to_do_and_no_secret(s3: Bucket, capfd) -> None:
    s3.put("empty/notes.txt", b"nothing")
    cases = {
        s3.uri("nope"): f"error: {s3.uri('nope')} does not exist",
        s3.uri("empty"): s3.uri("empty"),
        "http://127.0.0.1:9/run.csv?sig=topsecret": "error: http://127.0.0.1:9/run.csv: the connection failed",
    }
    for uri, expected in cases.items():
        code, out, err = output_of(capfd, "triage", uri)
        assert (code, out) == (2, "")
        assert expected in err
        assert "hint: " in err
        assert "cache" not in err
        assert "secret" not in err
        assert "bug" not in err


def test_help_and_commands_that_read_no_run_fetch_nothing(capfd) -> None:
    assert output_of(capfd, "triage", "s3://nowhere/run", "--help")[0] == 0
    assert {*COMMANDS, *GROUPS} >= READ
    assert not READ & {"explain", "docs", "lab", "drill", "push", "fleet", "watch"}


def test_functions_take_addresses(runs: Bucket) -> None:
    uri = runs.uri("runs/nan_batch")
    audit = package.triage(uri)
    assert audit.report.subject == uri
    assert uri in repr(audit)
    assert audit.report.findings == package.triage(RUNS / "nan_batch").report.findings
    assert package.validate(uri).report.subject == uri
    assert package.metrics(uri, "loss").measurement.subject == uri
    assert uri in repr(package.diff(runs.uri("runs/healthy"), uri))
    assert uri in repr(package.gate(uri, runs.uri("runs/healthy")))
    with pytest.raises(AssertionError, match=uri):
        package.assert_healthy(uri)
    with pytest.raises(UnreadableError, match="does not exist") as told:
        package.triage(Path(uri))
    assert "slashes" in told.value.hint
    runs.put("empty/notes.txt", b"nothing")
    with pytest.raises(UnreadableError, match=runs.uri("empty")) as told:
        package.triage(runs.uri("empty"))
    assert "cache" not in str(told.value) + told.value.hint


def test_pytest_audits_an_address(runs: Bucket, tmp_path: Path) -> None:
    words = ["-p", "ckaudit.pytest_plugin", "-p", "no:cacheprovider", "--ckaudit", runs.uri("runs/nan_batch"), str(tmp_path)]
    if "ckaudit.pytest_plugin" in sys.modules:
        words = words[2:]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"<Audit of {runs.uri('runs/nan_batch')}:" in done.stdout


def test_local_commands_load_no_client_of_storage() -> None:
    script = f"import sys; from ckaudit.cli.run import run; run(sys.argv[1:]); print(sorted({{*{LATE!r}}} & sys.modules.keys()))"
    for words in (["validate", str(RUNS / "nan_batch")], ["triage", str(RUNS / "nan_batch")]):
        done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True, cwd=ROOT)
        assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("library", ["fsspec", "aiohttp"])
def test_a_missing_client_is_named_with_its_extra(library: str) -> None:
    done = ckaudit("triage", "https://localhost/run.csv", without=[library], cwd=str(ROOT))
    assert done.returncode == 2
    assert "[remote]" in done.stderr
    assert "bug" not in done.stderr


def test_a_circle_of_links_in_a_local_folder_is_no_endless_walk(tmp_path: Path, capfd) -> None:
    (tmp_path / "runs/a").mkdir(parents=True)
    (tmp_path / "runs/a/up").symlink_to(tmp_path / "runs", target_is_directory=True)
    (tmp_path / "runs/self").symlink_to("self")
    for command in ("triage", "validate", "metrics", "coverage"):
        code, _, err = output_of(capfd, command, str(tmp_path / "runs"))
        assert code == 2
        assert str(tmp_path / "runs") in err
        code, _, err = output_of(capfd, command, str(tmp_path / "runs/self"))
        assert code == 2
        assert "self" in err
        assert "bug" not in err


def test_texts_and_documents_get_their_address_back(tmp_path: Path) -> None:
    from ckaudit.reports.view import View

    copy = tmp_path / "k" / "nano"
    remember(copy, "s3://bucket/nano")
    assert as_given(f"cannot read {copy}/run.json: no") == "cannot read s3://bucket/nano/run.json: no"
    assert with_addresses({"a": [str(copy), 1], "b": (None,)}) == {"a": ["s3://bucket/nano", 1], "b": (None,)}
    assert with_addresses(View(base=str(copy))).base == "s3://bucket/nano"
    unchanged = {"a": ["x"]}
    assert with_addresses(unchanged) is unchanged
    assert os.fspath(copy) not in json.dumps(with_addresses([str(copy / "x")]))
