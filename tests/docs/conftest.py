import importlib.util
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="session")
def script():
    """Import a script of docs/ by its name."""

    def load(name):
        spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    return load
