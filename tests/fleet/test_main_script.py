"""A script without a guard calls `ckaudit.fleet`: the processes audit, and do not run the script again."""

import subprocess
import sys
from pathlib import Path

RUNS = Path("fixtures/runs").resolve()
SCRIPT = f"""
import ckaudit
print("begun")
print(ckaudit.fleet({str(RUNS / "healthy")!r}, {str(RUNS / "lr_too_high")!r}, jobs=2).verdict)
"""


def test_a_script_without_a_guard_is_run_once(tmp_path):
    script = tmp_path / "audit_all.py"
    script.write_text(SCRIPT)
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "begun\n1 of 2 runs is ill\n", "")
