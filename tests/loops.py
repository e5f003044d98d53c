"""Many values in one test: a loop costs a hundredth of what as many tests cost, and every value that fails is still named."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

Test = Callable[..., None]


def for_each(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test once for each value, as `pytest.mark.parametrize` does, but within one test.

    Fixtures are shared by all values, so that this is not for a test that writes files or patches something.
    """
    keys = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
    is_several = not isinstance(names, str) or len(keys) > 1
    given = list(values)
    assert given, f"no value of {names}"
    assert not any(hasattr(value, "marks") for value in given), "a value with a mark needs a test of its own"

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            def check(value: Any) -> None:
                test(**dict(zip(keys, value if is_several else (value,), strict=True)), **fixtures)

            check_each(given, check, name=", ".join(keys))

        fixtures = [each for each in inspect.signature(test).parameters.values() if each.name not in keys]
        run.__signature__ = inspect.Signature(fixtures)
        return run

    return decorate


def check_each(values: Iterable[Any], check: Callable[[Any], None], *, name: str) -> None:
    """Check every value; those that fail are named by a note to their error, and several errors come as a group."""
    given, failed = list(values), []
    for value in given:
        try:
            check(value)
        except Exception as error:  # noqa: BLE001  it is raised again below
            error.add_note(f"{name} = {getattr(value, 'name', value)!r}")
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(given)} values fail", failed)
