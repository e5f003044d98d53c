"""Run the commands of pages that a reader types along with, and write the output into them: `python docs/executed.py`.

A comment above a block says what is done with it, in a folder of the page's own:

    <!-- file: train.py -->     the block is written to a file
    <!-- change: train.py -->   a block of a diff: its lines with a minus become those with a plus
    <!-- run -->                each line is run; it starts with `python`, `ckaudit` or `bash`
    <!-- screen -->             the block becomes the output of the last line
    <!-- picture: both.svg -->  above a picture: a file that a command wrote is kept as that picture
"""  # noqa: INP001

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

DOCS = Path(__file__).parent
DOCUMENTS = ("tutorial.md", "trainers.md", "jax.md", "foreign-log.md", "cluster.md", "fleet.md")
NEEDS = {"tutorial.md": ("transformers",), "trainers.md": ("transformers", "lightning"), "jax.md": ("jax",)}
"""Packages that a page needs to run."""

BLOCK = re.compile(
    r"(<!-- (file(?=:)|change(?=:)|run(?= )|screen(?= ))(?:: ([^\n]+))? -->\n```(\w+)\n)(.*?)(^```$)", re.DOTALL | re.MULTILINE
)
PICTURE = re.compile(r"<!-- picture: ([^\n]+) -->\n!\[[^]]*\]\((pictures/[^)]+)\)")
SCREEN = {"COLUMNS": "90", "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}


class Reader:
    """A simulated reader who follows a page, in a folder.

    Attributes:
        folder: Where files are written and commands run.
        printed: Output of the last command.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._programs = folder / "typed", folder / "programs"
        self.printed = ""
        self.folder.mkdir()
        self._programs.mkdir()
        own = f'exec "{sys.executable}"'
        for name, does in {"python": f'{own} "$@"', "ckaudit": f'{own} -m ckaudit "$@"', "srun": 'exec "$@"'}.items():
            program = self._programs / name
            program.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
            program.chmod(0o755)

    def follow(self, found: re.Match[str]) -> str:
        """Do what a block says, and return the block for the page."""
        start, does, name, _, body, end = found.groups()
        if does == "file":
            (self.folder / name).write_text(body, encoding="utf-8")
        elif does == "change":
            changed = changed_by((self.folder / name).read_text(encoding="utf-8"), body)
            (self.folder / name).write_text(changed, encoding="utf-8")
        elif does == "run":
            for line in body.splitlines():
                self.printed = self._run(line)
        else:
            body = self.printed
        return f"{start}{body}{end}"

    def _run(self, line: str) -> str:
        command, *words = shlex.split(line, comments=True)
        if command not in ("python", "ckaudit", "bash"):
            raise SystemExit(f"{line}: only python, ckaudit and bash are run")
        done = self.call(command, words)
        if done.returncode not in ((0, 1) if command == "ckaudit" else (0,)):
            raise SystemExit(f"{line}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    def call(self, command: str, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a program in the folder of the page, with a terminal as wide as those of the pages."""
        environ = {key: value for key, value in os.environ.items() if key != "FORCE_COLOR"} | SCREEN
        environ |= {"PYTHONPATH": str(DOCS.parent), "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}"}
        program = str(self._programs / command) if command != "bash" else "bash"
        called = [program, *words]
        return subprocess.run(called, cwd=self.folder, env=environ, capture_output=True, encoding="utf-8", check=False)  # noqa: S603


def changed_by(text: str, diff: str) -> str:
    r"""Return a text with the lines of a diff changed.

    >>> changed_by("a = 1\nb = 2\n", "-b = 2\n+b = 3\n+c = 4\n")
    'a = 1\nb = 3\nc = 4\n'
    """
    old = "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in "- ")
    new = "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in "+ ")
    if text.count(old) != 1:
        raise SystemExit(f"not once in the file:\n{old}")
    return text.replace(old, new)


def renewed(text: str, follower: type[Reader] = Reader) -> tuple[str, dict[str, str]]:
    """Return a page with all its screens regenerated, and its pictures by their paths in docs/."""
    with TemporaryDirectory() as place:
        reader = follower(Path(place))
        written = BLOCK.sub(reader.follow, text)
        drawn = {kept: (reader.folder / file).read_text(encoding="utf-8") for file, kept in PICTURE.findall(written)}
    return written, drawn


if __name__ == "__main__":
    for name in sys.argv[1:] or DOCUMENTS:
        document = DOCS / name
        page, pictures = renewed(document.read_text(encoding="utf-8"))
        document.write_text(page, encoding="utf-8")
        for place, picture in pictures.items():
            (DOCS / place).write_text(picture, encoding="utf-8")
