"""Every valid checkpoint of fixtures/ gives no finding; every invalid one gives the code that its name promises."""

import subprocess
import sys
from pathlib import Path

from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.checks import checks
from ckaudit.contract.io.files import BrokenFile, read_bytes
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.violations import KINDS
from tests.loops import for_each

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "checkpoints"
VALID = sorted((FIXTURES / "valid").iterdir())
INVALID = sorted(path for path in (FIXTURES / "invalid").rglob("*") if path.is_file())

# These cannot stand in a repository: tests of reading make them in a folder of their own.
NEED_A_FILE_SYSTEM = {"SYN001", "SYN008", "SYN013"}


def judged(path: Path) -> list[Finding]:
    try:
        return check_checkpoint(read_bytes(path, path.name), path.name).findings
    except BrokenFile as broken:
        return [broken.finding]


def promised(path: Path) -> str:
    return path.relative_to(FIXTURES / "invalid").parts[0][:6]


@for_each("path", VALID)
def test_a_valid_file_gives_no_finding(path):
    assert judged(path) == []


@for_each("path", INVALID)
def test_an_invalid_file_gives_the_code_of_its_name_and_no_other(path):
    assert {finding.code for finding in judged(path)} == {promised(path)}


@for_each("path", INVALID)
def test_a_finding_names_its_file_and_what_to_do(path):
    for finding in judged(path):
        assert finding.file == path.name
        assert finding.help
        assert "\n" not in finding.message


@for_each("path", [path for path in INVALID if promised(path).startswith("VAL")])
def test_a_contradiction_says_where_when_what_and_what_instead(path):
    for finding in judged(path):
        assert str(finding.pointer).startswith("/")
        assert finding.first_step is not None
        assert finding.expected
        assert finding.found is not None
        assert finding.line == 1


def test_there_is_an_invalid_file_for_every_kind_of_violation():
    checks()
    shown = {promised(path) for path in INVALID}
    of_one_file = {code for code in KINDS if code.startswith(("SYN", "SCH", "VAL"))}
    assert of_one_file - NEED_A_FILE_SYSTEM <= shown


def test_there_are_enough_of_both():
    assert len(VALID) >= 15
    assert len(INVALID) >= 60


def contents(folder: Path) -> dict[Path, bytes]:
    """Return what every file holds, unpacked: another version of a compressor may pack it in other bytes."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix in (".gz", ".zst"):
            try:
                found[path.relative_to(folder)] = read_bytes(path, path.name)
            except BrokenFile as broken:
                found[path.relative_to(folder)] = broken.finding.code.encode()
        elif path.is_file():
            found[path.relative_to(folder)] = path.read_bytes()
    return found


def test_the_files_are_those_that_the_script_makes(tmp_path):
    subprocess.run([sys.executable, ROOT / "fixtures" / "make.py", tmp_path], check=True, timeout=120)
    made = contents(tmp_path)
    kept = contents(FIXTURES / "valid") | contents(FIXTURES / "invalid")
    flat = {Path(*name.parts[1:]): data for name, data in made.items()}
    assert flat.keys() == kept.keys()
    assert [name for name in flat if flat[name] != kept[name]] == []
