"""Style and types, checked like everything else."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "command", [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]], ids=["ruff check", "ruff format", "mypy"]
)
def test_the_code_is_clean(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in (ROOT / "ckaudit").rglob("*.py")}
    assert not {str(path): lines for path, lines in lengths.items() if lines > 400}
