"""For pytest: `--ckaudit RUN` audits a run as a test of its own, and the fixture `audit` does so inside a test."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from ckaudit.api import Audit

SEVERITIES = ("sev0", "sev1", "sev2", "note")  # as in the report's schema, which would slow down every pytest run


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("ckaudit", "audits of training runs")
    group.addoption("--ckaudit", action="append", metavar="RUN", help="audit this run as a test of its own; may be repeated")
    group.addoption(
        "--ckaudit-fail-on",
        choices=SEVERITIES,
        metavar="SEVERITY",
        help="the least grave severity that fails it: sev0, sev1, sev2 or note; sev1 where neither this nor a policy says it",
    )


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each named run."""
    runs = config.getoption("--ckaudit") or []
    items.extend(RunItem.from_parent(session, name=f"ckaudit[{run}]", run=run) for run in runs)


class RunItem(pytest.Item):
    """The audit of one run."""

    def __init__(self, *, run: str, **given: Any) -> None:
        """Take the path of a run."""
        super().__init__(**given)
        self.run = run

    def runtest(self) -> None:
        """Audit the run.

        Raises:
            AssertionError: If a finding is severe enough.
        """
        from ckaudit.api import assert_healthy

        assert_healthy(self.run, fail_on=self.config.getoption("--ckaudit-fail-on"))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *rest: Any, **styles: Any) -> Any:
        """Return the audit's result, or why there is none; a traceback only if the auditor itself failed."""
        from ckaudit.errors import CkauditError

        if not isinstance(excinfo.value, AssertionError | CkauditError):
            return super().repr_failure(excinfo, *rest, **styles)
        hint = getattr(excinfo.value, "hint", "")
        return f"{excinfo.value}\n{hint}".rstrip()

    def reportinfo(self) -> tuple[str, None, str]:
        """Return the location of the test, for the lines of a report."""
        return self.run, None, self.name


@pytest.fixture(scope="session")
def audit() -> "Callable[..., Audit]":
    """Return `ckaudit.assert_healthy`: it audits a run, and fails the test if a finding is severe enough."""
    from ckaudit.api import assert_healthy

    return cast("Callable[..., Audit]", assert_healthy)
