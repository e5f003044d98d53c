"""Programs for a shell to find on its path, `ckaudit` and `python`: each has a process forked that has loaded its libraries."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from tests.forked import ckaudit, training

ASKING = """#!/bin/sh
{{ printf '%s\\0' {name} "$PWD" "$#" "$@"; env -0; }} > "{ask}"
read -r code < "{reply}"
cat "{ask}.1"
cat "{ask}.2" >&2
exit "$code"
"""
AUDITING = """#!/bin/sh
if [ "$1 $2" = "-m ckaudit" ]; then shift 2; exec "{folder}/ckaudit" "$@"; fi
exec "{python}" "$@"
"""


@contextmanager
def tools(folder, *, python="trains"):
    """Put the programs into a folder, to be called one at a time, and do what they ask for.

    Args:
        folder: It is made, and stands first in the path of a shell.
        python: What `python` does: a script of it "trains"; or of its modules ckaudit alone is forked, and it "audits".
    """
    folder.mkdir(parents=True)
    pipes = {name: folder / f".{name}" for name in ("ask", "reply")}
    for pipe in pipes.values():
        os.mkfifo(pipe)
    asking = {name: ASKING.format(name=name, **pipes) for name in ("ckaudit", "python")}
    if python == "audits":
        asking["python"] = AUDITING.format(folder=folder, python=sys.executable)
    for name, text in asking.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    server = Thread(target=_serve, args=pipes.values(), daemon=True)
    server.start()
    yield folder
    pipes["ask"].write_text("", encoding="utf-8")
    server.join()


def _serve(ask, reply):
    while words := ask.read_text(encoding="utf-8").split("\0")[:-1]:
        name, folder, count, *words = words
        arguments, variables = words[: int(count)], dict(each.split("=", 1) for each in words[int(count) :])
        does = training if name == "python" else ckaudit
        done = does(*arguments, cwd=folder, **variables)
        for number, told in ((1, done.stdout), (2, done.stderr)):
            Path(f"{ask}.{number}").write_text(told, encoding="utf-8")
        reply.write_text(f"{done.returncode}\n", encoding="utf-8")
