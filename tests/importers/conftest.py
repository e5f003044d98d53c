"""Short files of other programs, written and imported."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ckaudit.importers import Imported, ImportOptions, import_source

Import = Callable[..., Imported]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Write bytes or text to a file and import it; keywords are columns by catalogue name."""

    def run(content: bytes | str, name: str = "log.csv", **columns: str) -> Imported:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return import_source(path, import_options=ImportOptions(columns=columns))

    return run


@pytest.fixture
def trained(imported: Import) -> Import:
    """Import a trainer's state with these entries in its log history."""

    def run(*entries: Mapping[str, Any], columns: Mapping[str, str] | None = None, **state: Any) -> Imported:
        document = {"best_metric": None, "global_step": 100, "log_history": list(entries), "max_steps": 100, **state}
        return imported(json.dumps(document), "trainer_state.json", **(columns or {}))

    return run
