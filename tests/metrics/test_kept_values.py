"""The values of every metric on small recordings are those that were last read."""

import pytest

from tests.case_verdicts import METRICS
from tests.metrics.kept_values import by_module

NAMES = sorted(path.stem for path in METRICS.glob("*.txt"))


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return by_module()


def test_every_module_of_metrics_has_its_values(found: dict[str, str]) -> None:
    assert sorted(found) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_gives_what_it_gave(found: dict[str, str], name: str) -> None:
    assert found[name] == (METRICS / f"{name}.txt").read_text(encoding="utf-8")
