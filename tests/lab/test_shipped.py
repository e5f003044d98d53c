"""The recordings of the lab that are shipped: of today's changes, small, and judged without their names."""

from pathlib import Path

import pytest

from ckaudit.lab import archive
from ckaudit.lab.cache import look
from ckaudit.lab.recipe import recipe
from tests.lab.anonymous import OWN, TOLD
from tests.lab.test_anonymous import disguised, verdicts

SHIPPED = Path(__file__).parents[2] / "fixtures" / "lab"
ENTRIES = sorted(path.name.removesuffix(".tar.zst") for path in SHIPPED.glob("*.tar.zst"))
MAX_BYTES = 250_000


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_shipped_recording_is_of_today_and_small(entry: str) -> None:
    name, _, seed = entry.rpartition(".")
    found = look(SHIPPED, recipe(name, int(seed)))
    again = f"ckaudit lab record --fresh --cache fixtures/lab --only {entry} --split both"
    assert found.usable, f"{found.state}: {found.why}; {again}"
    assert found.path.stat().st_size <= MAX_BYTES


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_shipped_recording_is_judged_by_what_any_run_has(entry: str, tmp_path: Path) -> None:
    archive.unpack(SHIPPED / f"{entry}.tar.zst", tmp_path)
    assert disguised(tmp_path, facts=OWN | TOLD) == verdicts(tmp_path)
