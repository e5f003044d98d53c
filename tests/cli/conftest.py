import sys
from importlib import import_module
from types import ModuleType

import pytest


@pytest.fixture
def engine(monkeypatch):
    """Put functions in the engine's place; each call is recorded."""

    def install(report=None, *, error=None):
        calls = []

        def answer(target, **asked):
            calls.append((target, asked))
            if error is not None:
                raise error
            return report

        for module, function in (("ckaudit.validate", "validate"), ("ckaudit.audit", "triage")):
            fake = ModuleType(module)
            fake.__path__ = import_module(module).__path__  # all else in the package is the real one
            setattr(fake, function, answer)
            monkeypatch.setitem(sys.modules, module, fake)
        return calls

    return install
