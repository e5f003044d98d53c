"""Audits as tests: pytest runs them, and says what was found."""

import subprocess
import sys
from pathlib import Path

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
PLUGIN = () if "ckaudit.pytest_plugin" in sys.modules else ("-p", "ckaudit.pytest_plugin")


def run_pytest(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_runs_are_tests_of_their_own(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "--ckaudit", RUNS / "healthy", "--ckaudit", RUNS / "lr_too_high")
    assert "1 failed, 1 passed" in done.stdout
    assert "LOSS" in done.stdout
    assert "Traceback" not in done.stdout
    assert done.returncode == 1


def test_the_least_grave_severity_that_fails_can_be_named(tmp_path: Path) -> None:
    assert run_pytest(tmp_path, "--ckaudit", RUNS / "healthy", "--ckaudit-fail-on", "sev2").returncode == 0
    assert run_pytest(tmp_path, "--ckaudit", RUNS / "healthy", "--ckaudit-fail-on", "sev9").returncode == 4


def test_a_run_that_is_not_there_fails_with_a_word(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "--ckaudit", "runs/none")
    assert "runs/none does not exist" in done.stdout
    assert "It was looked for from" in done.stdout
    assert "1 failed" in done.stdout


def test_the_fixture_audits_inside_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        f"def test_good(audit):\n    assert audit({str(RUNS / 'healthy')!r}).verdict\n\n\n"
        f"def test_bad(audit):\n    audit({str(RUNS / 'lr_too_high')!r}, fail_on='sev1')\n"
    )
    done = run_pytest(tmp_path)
    assert "1 failed, 1 passed" in done.stdout
    assert "FAILED test_mine.py::test_bad" in done.stdout
