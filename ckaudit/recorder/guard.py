"""Keeps every failure of the recorder away from the training: logged once, counted always."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("ckaudit.recorder")


class Guard:
    """Runs pieces of the recorder's work and swallows what they raise.

    Attributes:
        failures: How many pieces failed.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._said: set[tuple[str, type[BaseException]]] = set()

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        """Run the body of a `with`; an interrupt passes through, any other exception ends here."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  nothing of ours may reach the training
            self.failed(what, error)

    def failed(self, what: str, error: Exception) -> None:
        """Count a failure, and log the first of its kind."""
        self.failures += 1
        kind = (what, type(error))
        if kind in self._said:
            return
        self._said.add(kind)
        logger.warning("%s failed and the training goes on without it: %s: %s", what, type(error).__name__, error)
