"""What is known of a fault that a training of any family can have."""

from collections.abc import Callable

from msgspec import Struct

from ckaudit.lab.zoo.recipe import Recipe
from ckaudit.recorder.drill.damage import Amount


class Fault(Struct, frozen=True, kw_only=True):
    """One way in which a training goes wrong.

    Attributes:
        title: What is wrong, in a few words.
        done: Makes the ill recipe of a healthy one.
        truth: Name of the cause.
        acceptable: Other causes that name the same, or that nobody could tell from it.
        is_fact: Whether it is done to weights, gradients or code, so that a record shows it whatever the loss says: then it
            always counts as one with an effect.
        loop: Whether it can only happen in a loop that the user wrote.
        sudden: Whether it comes at the onset, not from the start.
        suits: Whether it can be done to a recipe at all.
        place: Whether there is a place that a finding should name: the part in the middle.
        on: Makes of a healthy recipe the healthy one that it can be done to, as one in half precision.
        slow: Whether its harm grows from step to step, so that it could be seen before the loss shows it.
    """

    title: str
    done: Callable[[Recipe, Amount], Recipe]
    truth: str
    acceptable: tuple[str, ...] = ()
    is_fact: bool = False
    loop: bool = False
    sudden: bool = False
    suits: Callable[[Recipe], bool] = lambda _: True
    place: bool = False
    on: Callable[[Recipe], Recipe] = lambda healthy: healthy
    slow: bool = False
