"""A table of a policy file: its keys are known, its values are what they should be, and its errors name file and place."""

from typing import Any, TypeVar

import msgspec

from ckaudit.errors import UsageError
from ckaudit.policy.suggest import refuse

WANTED = {
    "scale": "nano, medium or large",
    "stage": "early, steady or late",
    "select": "a list of codes, names or patterns of rules",
    "ignore": "tables, each under [[ignore]]",
    "thresholds": "a table for each rule, such as [thresholds.loss_spike]",
    "severities": "a table of rules, each with sev0, sev1, sev2, note or off",
    "fail_on": "sev0, sev1, sev2 or note",
    "require": "vital",
    "tau_slices": "two names, the easy slice and the hard one",
    "questions": "a list of questions that count, such as loss, validation or speed",
    "allow": 'a table of questions, each with a share such as "10%" or a number',
    "incomparable": "error, fail or pass",
    "expect": 'a list of names or patterns of differences, such as "config.learning_rate"',
    "slices": "a list of names of slices",
    "code": "the code or name of a rule or violation, or a pattern",
    "reason": "a text that says why",
    "where": "a pattern of tensors, blocks, heads, scalars or files",
    "until": "a date, such as 2027-01-31",
}

T = TypeVar("T", bound=msgspec.Struct)


class Source(msgspec.Struct, frozen=True):
    """A file and the table in it; its errors name both.

    Attributes:
        file: The file as a reader would name it.
        prefix: What stands before the keys in that file.
    """

    file: str
    prefix: str

    def error(self, place: str, what: str, hint: str = "") -> UsageError:
        """Return the error for what stands at a place."""
        return UsageError(f"{self.file}: {self.prefix}{place}{what}", hint=hint)

    def table(self, document: object, place: str, known: tuple[str, ...]) -> dict[str, Any]:
        """Return a table all of whose keys are known, or raise `UsageError`."""
        if not isinstance(document, dict):
            raise self.error(place, " is not a table", f"its keys are {', '.join(known)}")
        for key in document:
            if key not in known:
                raise refuse(f"{self.file}: unknown key {self.prefix}{inside(place, key)}", key, known)
        return document

    def value(self, value: object, kind: Any, place: str, wanted: str) -> Any:
        """Return a value as what its key asks for, or raise `UsageError`."""
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            raise self.error(place, f": expected {wanted}, got {value!r}") from None

    def struct(self, table: dict[str, Any], kind: type[T], place: str) -> T:
        """Return a table as a Struct, key by key, or raise `UsageError`."""
        types = {field.name: field for field in msgspec.structs.fields(kind)}
        for name, field in types.items():
            if field.required and not str(table.get(name, "")).strip():
                raise self.error(place, f" has no {name}", f"add {name} = ..., {WANTED[name]}")
        return kind(**{key: self.value(value, types[key].type, inside(place, key), WANTED[key]) for key, value in table.items()})


def inside(place: str, key: str) -> str:
    """Return where a key of a table stands."""
    return f"{place}.{key}" if place else key
