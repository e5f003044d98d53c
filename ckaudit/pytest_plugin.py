"""For pytest: `--ckaudit RUN` audits a run as a test of its own, and the fixture `audit` does so inside one."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from ckaudit.api import Audit

SEVERITIES = ("sev0", "sev1", "sev2", "note")  # as the report's schema has them, which every run of pytest would have to load


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the options."""
    group = parser.getgroup("ckaudit", "audits of training runs")
    group.addoption("--ckaudit", action="append", metavar="RUN", help="audit this run as a test of its own; may be repeated")
    group.addoption(
        "--ckaudit-fail-on",
        choices=SEVERITIES,
        metavar="SEVERITY",
        help="the least grave severity that fails it: sev0, sev1, sev2 or note; sev1 where neither this nor a policy says it",
    )


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each run that was named."""
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
            AssertionError: Where a finding is grave enough.
        """
        from ckaudit.api import assert_healthy

        assert_healthy(self.run, fail_on=self.config.getoption("--ckaudit-fail-on"))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *rest: Any, **styles: Any) -> Any:
        """Return what the audit says, or why there is none; a traceback only where the auditor itself broke."""
        from ckaudit.errors import CkauditError

        if not isinstance(excinfo.value, AssertionError | CkauditError):
            return super().repr_failure(excinfo, *rest, **styles)
        hint = getattr(excinfo.value, "hint", "")
        return f"{excinfo.value}\n{hint}".rstrip()

    def reportinfo(self) -> tuple[str, None, str]:
        """Return where it is from, for the lines of a report."""
        return self.run, None, self.name


@pytest.fixture(scope="session")
def audit() -> "Callable[..., Audit]":
    """Return `ckaudit.assert_healthy`: it audits a run, and fails the test where a finding is grave enough."""
    from ckaudit.api import assert_healthy

    return cast("Callable[..., Audit]", assert_healthy)
