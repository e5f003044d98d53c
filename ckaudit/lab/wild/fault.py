"""The description of a fault that a training of any family can have."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from ckaudit.lab.zoo.recipe import Recipe
from ckaudit.recorder.drill.damage import DrillStrength
from ckaudit.recorder.drill.settings import KINDS, FaultKind


class Fault(FaultKind, frozen=True, kw_only=True):
    """One kind of fault of a training in the zoo.

    Attributes:
        done: Returns the ill recipe for a healthy one.
        loop: Whether it needs a loop that the user wrote.
        suits: Whether it can be applied to a recipe at all.
        on: Returns the healthy recipe to which it can be applied, for example in half precision.
        slow: Whether its harm grows from step to step, so that it may be detectable before the loss shows it.
    """

    done: Callable[[Recipe, DrillStrength], Recipe]
    loop: bool = False
    suits: Callable[[Recipe], bool] = lambda _: True
    on: Callable[[Recipe], Recipe] = lambda healthy: healthy
    slow: bool = False


def known(name: str, done: Callable[[Recipe, DrillStrength], Recipe], **more: Any) -> Fault:
    """Return a fault of the drills, with its description from there."""
    return Fault(**asdict(KINDS[name]) | {"done": done} | more)
