"""The conversation: single lines on standard error, safe whatever a name holds."""

import os
import sys

from ckaudit.reports.escape import visible


def say(line: str) -> None:
    """Write one line to standard error, unless it is empty; that nobody listens any more changes no exit code."""
    if not line:
        return
    try:
        sys.stderr.write(visible(line, ascii_only=(sys.stderr.encoding or "").lower() != "utf-8") + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
