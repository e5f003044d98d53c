"""Write the real output of commands into the documents: `python docs/screens.py`.

Below a line `<!-- screen: COMMAND -->` is a block with the whole output of `ckaudit COMMAND`. The README has a picture of one
command's first lines, in two versions for the two colour schemes.
"""  # noqa: INP001

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = tuple(DOCS / name for name in ("commands.md", "verdict.md", "reading-pictures.md", "gate.md", "siblings.md"))
PICTURES = DOCS / "pictures"
PICTURED = "triage fixtures/runs/zeroed_projection"
SCREEN = re.compile(r"(<!-- screen: ([^\n]*) -->\n```text\n)(.*?)(```\n)", re.DOTALL)
WIDTH = 90
# The drawn part: the verdict, the causes and their evidence.
ENDS_BEFORE = "What to do now"
# Only the letters of rich's own picture are kept: no window around them, and no font that is fetched.
FRAME = """<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
line-height: {line_height}px; font-variant-ligatures: none; }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="BACKGROUND"/>
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</svg>
"""
LIGHT = ((255, 255, 255), (31, 35, 40), [(255, 255, 255), (207, 34, 46), (17, 99, 41), (141, 73, 0), (9, 105, 218)])
DARK = ((13, 17, 23), (230, 237, 243), [(13, 17, 23), (255, 123, 114), (86, 211, 100), (240, 183, 47), (121, 192, 255)])


def printed(command: str, *, colours: bool = False) -> str:
    """Return the output of `ckaudit` on a screen of `WIDTH` columns, in the root of the repository."""
    plain = {"COLUMNS": str(WIDTH), "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    plain |= {"FORCE_COLOR": "1"} if colours else {"NO_COLOR": "1"}
    called = [sys.executable, "-m", "ckaudit", *command.split()]
    environ = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR")} | plain
    ran = subprocess.run(called, cwd=ROOT, env=environ, capture_output=True, encoding="utf-8", check=False)  # noqa: S603  our own
    if ran.returncode not in (0, 1):
        raise SystemExit(f"ckaudit {command}: {ran.stderr}")
    return ran.stdout


def renewed(text: str) -> str:
    """Return a document with all its screens regenerated."""
    return SCREEN.sub(lambda found: f"{found[1]}{printed(found[2])}{found[4]}", text)


def pictures() -> dict[Path, str]:
    """Return the pictures of the README, by path."""
    from io import StringIO

    from rich.console import Console
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text

    lines = Text.from_ansi(printed(PICTURED, colours=True))
    prompt = Text(f"$ ckaudit {PICTURED}", style="dim")
    shown = [*lines.split("\n")]
    end = next(row for row, line in enumerate(shown) if ENDS_BEFORE in line.plain)
    drawn = {}
    for name, (background, letters, colours) in {"light": LIGHT, "dark": DARK}.items():
        console = Console(record=True, width=WIDTH + 2, file=StringIO(), force_terminal=True)
        for line in (prompt, Text(), *shown[: end - 1], Text()):
            console.print(Text(" ").append_text(line))
        theme = TerminalTheme(background, letters, colours)
        frame = FRAME.replace("BACKGROUND", theme.background_color.hex)
        picture = console.export_svg(theme=theme, code_format=frame, unique_id=f"triage-{name}")
        drawn[PICTURES / f"triage-{name}.svg"] = "\n".join(line.rstrip() for line in picture.splitlines()) + "\n"
    return drawn


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(renewed(document.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    for path, picture in pictures().items():
        path.write_text(picture, encoding="utf-8")
