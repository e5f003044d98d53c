"""The conversation: single lines on standard error, safe whatever a name holds."""

import sys

from ckaudit.reports.escape import visible


def say(line: str) -> None:
    """Write one line to standard error, unless it is empty."""
    if line:
        sys.stderr.write(visible(line, ascii_only=(sys.stderr.encoding or "").lower() != "utf-8") + "\n")
        sys.stderr.flush()
