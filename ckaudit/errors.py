"""All errors that ckaudit raises deliberately.

CkauditError
├── UnreadableError     an argument that cannot be audited at all: missing, not ours, or empty
├── UsageError          an invalid request: an unknown name, a step that is not a number
└── UnhealthyRunError   a watched training is as unhealthy as its loop asked to be told
"""

from collections.abc import Sequence
from typing import Any


class CkauditError(Exception):
    """Base of all errors with a message meant for the user.

    Attributes:
        hint: One sentence on what to do about it, or an empty string.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UnreadableError(CkauditError):
    """What the user named cannot be audited at all."""


class UsageError(CkauditError):
    """The request itself is invalid."""


class UnhealthyRunError(CkauditError):
    """A watched training is unhealthy; raised only on request.

    Attributes:
        findings: The findings, each a `Finding` as in ck.report.v1.
    """

    def __init__(self, message: str, *, findings: Sequence[Any] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.findings = findings
