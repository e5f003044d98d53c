"""A program of others that imports ckaudit from an installed wheel is checked by mypy, strictly: wrong uses are refused."""

import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")
pytest.importorskip("mypy")

ROOT = Path(__file__).parents[2]
RIGHT = """
from pathlib import Path

import ckaudit
from ckaudit import Audit

audit: Audit = ckaudit.triage("run", step=500)
word: str = audit.verdict
codes: list[str] = [finding.code for finding in audit.findings]
causes: list[str] = [diagnosis.cause for diagnosis in audit.diagnoses]
difference = ckaudit.diff(Path("before"), "run")
told: str = difference.word
passed: bool = ckaudit.gate("run", "before").outcome == "passed"
ckaudit.assert_healthy("run", fail_on="sev2")
"""
# Each with a line that mypy must refuse, and the code that it does so with.
WRONG = {
    "an attribute that is none": ("audit.verdicts", "attr-defined"),
    "a verdict as a number": ("number: int = audit.verdict", "assignment"),
    "a step in words": ('ckaudit.triage("run", step="last")', "arg-type"),
    "an option that is none": ('ckaudit.triage("run", steps=5)', "call-arg"),
    "a severity that is none": ('ckaudit.assert_healthy("run", fail_on="grave")', "arg-type"),
    "an attribute of a finding that is none": ("audit.findings[0].kode", "attr-defined"),
    "a function that is none": ('ckaudit.triages("run")', "attr-defined"),
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """Install the wheel, with the libraries of this environment beside it, and return what mypy says of lines of a client."""
    folder = tmp_path_factory.mktemp("client")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    venv.create(folder / "venv", symlinks=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # No line of a client has a type of torch, which is four fifths of all that would be read.
    (folder / "mypy.ini").write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n")
    (folder / "client.py").write_text(RIGHT)
    for number, (line, _) in enumerate(WRONG.values()):
        (folder / f"wrong_{number}.py").write_text(RIGHT + line + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", folder / "venv" / "bin" / "python"]
    files = ["client.py", *(f"wrong_{number}.py" for number in range(len(WRONG)))]
    done = subprocess.run(
        [*command, "--cache-dir", folder / "cache", *files], cwd=folder, capture_output=True, text=True, check=False
    )
    found = {}
    for line in done.stdout.splitlines():
        if match := re.match(r"(\w+)\.py:(\d+): error: .*\[([\w-]+)\]$", line):
            found.setdefault(match[1], []).append((int(match[2]), match[3], line))
    assert done.stderr == ""
    return found


def test_a_right_client_passes(checked):
    assert checked.get("client") is None


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_line_is_refused_and_no_other(checked, case):
    last = len(RIGHT.splitlines()) + 1
    found = checked[f"wrong_{list(WRONG).index(case)}"]
    assert [(line, code) for line, code, _ in found] == [(last, WRONG[case][1])], found
