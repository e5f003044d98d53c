"""Runs ckaudit in the process of the tests: forking one takes as long as an audit."""

import io
import subprocess
import sys

import pytest

from ckaudit.cli.run import run

SCREEN = ("COLUMNS", "NO_COLOR", "FORCE_COLOR")  # what somebody who runs the tests may have set for a terminal


def ckaudit(*arguments, cwd=".", **variables):
    """Run a command line, and return what it printed and its exit code, as `subprocess.run` does.

    Args:
        arguments: Its words.
        cwd: The folder in which it runs.
        variables: Environment variables.
    """
    words = [*map(str, arguments)]
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for name in ("stdout", "stderr")}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        for name in SCREEN:
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        code = run(words)
    for stream in streams.values():
        stream.flush()
    return subprocess.CompletedProcess(words, code, *(stream.buffer.getvalue().decode() for stream in streams.values()))
