"""A policy file read: TOML to clauses, where an unknown key is an error that names its place and the nearest key."""

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ckaudit.errors import UsageError
from ckaudit.policy.clauses import PROFILES, Clauses, Grade, Ignore, Policy, Scale, Stage
from ckaudit.policy.find import OWN, SHARED
from ckaudit.policy.nearest import refuse

HEAD = ("scale", "stage", "profile")
PLACE = re.compile(r" - at `\$(?P<place>.*)`$")

T = TypeVar("T")


class Source(msgspec.Struct, frozen=True):
    """A file and the table in it; its errors name both.

    Attributes:
        file: The file as a reader would name it.
        prefix: What stands before the keys in that file.
    """

    file: str
    prefix: str

    def table(self, document: object, place: str, known: tuple[str, ...]) -> dict[str, Any]:
        """Return a table all of whose keys are known, or raise `UsageError`."""
        if not isinstance(document, dict):
            raise UsageError(f"{self.file}: {self.prefix}{place} is not a table", hint=f"its keys are {', '.join(known)}")
        for key in document:
            if key not in known:
                where = f"{self.prefix}{place}.{key}" if place else f"{self.prefix}{key}"
                raise refuse(f"{self.file}: unknown key {where}", key, known)
        return document

    def convert(self, value: object, kind: type[T], place: str) -> T:
        """Return a value as what its key asks for, or raise `UsageError`."""
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            text = str(error)
            inside = match["place"] if (match := PLACE.search(text)) else ""
            where = f"{self.prefix}{place}{inside}" if place else f"{self.prefix}{inside.removeprefix('.')}"
            wanted = PLACE.sub("", text)
            hint = "write a date as 2027-01-31, a severity as sev0, sev1, sev2 or note, and a text in quotes"
            raise UsageError(f"{self.file}: {where}: {wanted[:1].lower()}{wanted[1:]}", hint=hint) from None


def read_policy(path: Path, shown: str = "") -> Policy:
    """Read a policy.

    Args:
        path: A TOML file; of a pyproject.toml the table [tool.ckaudit] is read.
        shown: The file as messages name it; default: the path.

    Raises:
        UsageError: Where it cannot be read, a key is not known, or a value is not what its key asks for.
    """
    source = Source(shown or str(path), "tool.ckaudit." if path.name == SHARED else "")
    document = _parsed(path, source)
    keys = Clauses.__struct_fields__
    table = source.table(document, "", (*HEAD, *keys))
    profiles = source.table(table.get("profile", {}), "profile", PROFILES)
    return Policy(
        file=source.file,
        base=_clauses({key: value for key, value in table.items() if key not in HEAD}, "", source),
        profiles={name: _clauses(each, f"profile.{name}", source) for name, each in profiles.items()},
        scale=source.convert(table.get("scale"), Scale | None, "scale"),  # type: ignore[arg-type]
        stage=source.convert(table.get("stage"), Stage | None, "stage"),  # type: ignore[arg-type]
    )


def _parsed(path: Path, source: Source) -> object:
    import tomllib

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read {source.file}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{source.file} is not TOML: {error}", hint="https://toml.io shows how it is written") from None
    if path.name != SHARED:
        return document
    tool = document.get("tool")
    if not isinstance(tool, dict) or "ckaudit" not in tool:
        raise UsageError(f"{source.file} has no table [tool.ckaudit]", hint=f"add one, or name a {OWN}")
    return tool["ckaudit"]


def _clauses(document: object, place: str, source: Source) -> Clauses:
    """Return the clauses of one table."""
    table = source.table(document, place, Clauses.__struct_fields__)
    inside = f"{place}." if place else ""
    ignores = table.get("ignore", [])
    for index, each in enumerate(ignores if isinstance(ignores, list) else []):
        here = f"{inside}ignore[{index}]"
        source.table(each, here, Ignore.__struct_fields__)
        if not str(each.get("reason", "")).strip():
            raise UsageError(f"{source.file}: {source.prefix}{here} has no reason", hint='add reason = "..." that says why')
    for name, grade in table.get("severities", {}).items() if isinstance(table.get("severities"), dict) else ():
        source.convert(grade, Grade, f"{inside}severities.{name}")  # type: ignore[arg-type]
    return source.convert(table, Clauses, place)
