"""Audits as tests: pytest runs them, and says what was found."""

import sys
from pathlib import Path

import pytest

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
PLUGIN = () if "ckaudit.pytest_plugin" in sys.modules else ("-p", "ckaudit.pytest_plugin")


@pytest.fixture
def run_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Return what runs pytest in a folder of its own, and gives its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\n")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    def run(*arguments: object) -> tuple[int, str]:
        alone = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", str(settings), *PLUGIN)
        code = pytest.main([*alone, *map(str, arguments)])
        return int(code), "".join(capsys.readouterr())

    return run


def test_runs_are_tests_of_their_own(run_pytest) -> None:
    code, printed = run_pytest("--ckaudit", RUNS / "healthy", "--ckaudit", RUNS / "lr_too_high")
    assert "1 failed, 1 passed" in printed
    assert "LOSS" in printed
    assert "Traceback" not in printed
    assert code == 1


def test_the_least_grave_severity_that_fails_can_be_named(run_pytest) -> None:
    assert run_pytest("--ckaudit", RUNS / "healthy", "--ckaudit-fail-on", "sev2")[0] == 0
    assert run_pytest("--ckaudit", RUNS / "healthy", "--ckaudit-fail-on", "sev9")[0] == 4


def test_a_run_that_is_not_there_fails_with_a_word(run_pytest) -> None:
    _, printed = run_pytest("--ckaudit", "runs/none")
    assert "runs/none does not exist" in printed
    assert "It was looked for from" in printed
    assert "1 failed" in printed


def test_the_fixture_audits_inside_a_test(run_pytest, tmp_path: Path) -> None:
    (tmp_path / "test_of_two_runs.py").write_text(
        f"def test_good(audit):\n    assert audit({str(RUNS / 'healthy')!r}).verdict\n\n\n"
        f"def test_bad(audit):\n    audit({str(RUNS / 'lr_too_high')!r}, fail_on='sev1')\n"
    )
    _, printed = run_pytest()
    assert "1 failed, 1 passed" in printed
    assert "FAILED test_of_two_runs.py::test_bad" in printed


def test_where_the_auditor_breaks_its_place_is_shown(run_pytest, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of the auditor's own")

    monkeypatch.setattr("ckaudit.api.assert_healthy", broken)
    code, printed = run_pytest("--ckaudit", RUNS / "healthy")
    assert code == 1
    assert "test_pytest_plugin.py" in printed
    assert "ZeroDivisionError" in printed
