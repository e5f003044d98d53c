"""A catalogue of units, one per file: rules, causes, metrics, questions, tabs, faults."""

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pkgutil import walk_packages
from typing import Any, Generic, TypeVar

from ckaudit.plugins import GROUPS, has_any, load

Unit = TypeVar("Unit")


class Catalogue(Generic[Unit]):
    """Units of one kind by key; each is added when the module that defines it is imported.

    Args:
        kind: What a unit is called, such as "rule".
        package: The package whose modules hold the units, such as "ckaudit.rules".
        before_plugins: Called before the units of other packages are loaded; loads the catalogues that they may import from.
    """

    def __init__(self, kind: str, package: str, *, before_plugins: Callable[[], object] | None = None) -> None:
        self._kind = kind
        self._package = package
        self._before_plugins = before_plugins
        self._entered: dict[str, Unit] = {}
        self._all: dict[str, Unit] = {}

    def add(self, key: str, unit: Unit) -> Unit:
        """Add a unit.

        Raises:
            ValueError: If another unit has the key.
        """
        if key in self._entered:
            raise ValueError(f"{self._kind} {key} stands twice in the catalogue")
        self._entered[key] = unit
        return unit

    def units(self) -> dict[str, Unit]:
        """Import every module of the package and of plugins, once, and return all units by key, sorted."""
        if not self._all:
            import_all(self._package)
            if self._package in GROUPS and has_any(self._package):
                if self._before_plugins:
                    self._before_plugins()
                load(self._package)
            self._all = dict(sorted(self._entered.items()))
        return self._all


def thresholds_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword-only parameters of a unit's function, which are its thresholds, and their defaults."""
    parameters = signature(function).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def import_all(package: str) -> None:
    """Import every module of a package and of its folders."""
    for module in walk_packages(import_module(package).__path__, f"{package}."):
        import_module(module.name)
