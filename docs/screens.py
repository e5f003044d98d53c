"""Write the screens in README.md anew, what the commands above them really print of recorded runs: `python docs/screens.py`."""  # noqa: INP001

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SCREEN = re.compile(r"(<!-- screen: ([^\n]*) -->\n```text\n)(.*?)(```\n)", re.DOTALL)
WIDTH = 90


def printed(command: str) -> str:
    """Return what `ckaudit` prints on a screen of `WIDTH` columns without colours, in the root of the repository."""
    plain = {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)}
    called = [sys.executable, "-m", "ckaudit", *command.split()]
    environ = os.environ | plain
    ran = subprocess.run(called, cwd=ROOT, env=environ, capture_output=True, encoding="utf-8", check=False)  # noqa: S603  our own
    if ran.returncode not in (0, 1):
        raise SystemExit(f"ckaudit {command}: {ran.stderr}")
    return ran.stdout


def renewed(text: str) -> str:
    """Return a document with all its screens made anew."""
    return SCREEN.sub(lambda found: f"{found[1]}{printed(found[2])}{found[4]}", text)


if __name__ == "__main__":
    README.write_text(renewed(README.read_text(encoding="utf-8")), encoding="utf-8")
