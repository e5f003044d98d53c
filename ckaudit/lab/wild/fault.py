"""What is known of a fault that a training of any family can have."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from ckaudit.lab.zoo.recipe import Recipe
from ckaudit.recorder.drill.damage import DrillStrength
from ckaudit.recorder.drill.settings import KINDS, FaultKind


class Fault(FaultKind, frozen=True, kw_only=True):
    """One way in which a training of the zoo goes wrong.

    Attributes:
        done: Makes the ill recipe of a healthy one.
        loop: Whether it can only happen in a loop that the user wrote.
        suits: Whether it can be done to a recipe at all.
        on: Makes of a healthy recipe the healthy one that it can be done to, as one in half precision.
        slow: Whether its harm grows from step to step, so that it could be seen before the loss shows it.
    """

    done: Callable[[Recipe, DrillStrength], Recipe]
    loop: bool = False
    suits: Callable[[Recipe], bool] = lambda _: True
    on: Callable[[Recipe], Recipe] = lambda healthy: healthy
    slow: bool = False


def known(name: str, done: Callable[[Recipe, DrillStrength], Recipe], **more: Any) -> Fault:
    """Return a fault that a drill can do as well, with what is said of it there."""
    return Fault(**asdict(KINDS[name]) | {"done": done} | more)
