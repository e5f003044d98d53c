"""Keeps every failure of the recorder away from the training: logged once, counted always."""

import logging
from types import TracebackType

logger = logging.getLogger("ckaudit.recorder")


class Guard:
    """Runs pieces of the recorder's work and swallows what they raise.

    Attributes:
        failures: How many pieces failed.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._said: set[tuple[str, type[BaseException]]] = set()

    def __call__(self, what: str) -> "GuardedBlock":
        """Run the body of a `with`; an interrupt passes through, any other exception ends here."""
        return GuardedBlock(self, what)

    def failed(self, what: str, error: Exception) -> None:
        """Count a failure, and log the first of its kind."""
        self.failures += 1
        kind = (what, type(error))
        if kind in self._said:
            return
        self._said.add(kind)
        logger.warning("%s failed and the training goes on without it: %s: %s", what, type(error).__name__, error)


class GuardedBlock:
    """The body of one `with`: a class, because a generator takes three times as long, several times a step."""

    __slots__ = ("_guard", "_what")

    def __init__(self, guard: Guard, what: str) -> None:
        self._guard, self._what = guard, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            self._guard.failed(self._what, error)
            return True
        return False
