"""What is known of the optimizer: whether it divides each gradient by its own usual size, or takes it as it is."""

from ckaudit.run.series import Series


def is_plain_descent(adapts: Series | None) -> bool:
    """Tell whether the optimizer is known to multiply the gradient by the rate alone (`optimizer_adapts` is 0 somewhere)."""
    return adapts is not None and bool((adapts.values[adapts.finite] == 0).any())


def is_adaptive(adapts: Series | None) -> bool:
    """Tell whether the optimizer is known to divide each gradient by its usual size, as Adam does."""
    return adapts is not None and bool((adapts.values[adapts.finite] == 1).any())
