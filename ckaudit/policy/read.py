"""Finding and reading of a policy file: TOML to clauses; an unknown key is an error with its place and the nearest key."""

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ckaudit.errors import UsageError
from ckaudit.policy.policy_schema import (
    PROFILES,
    GateTerms,
    Grade,
    Ignore,
    Policy,
    PolicyClauses,
    Scale,
    Stage,
    Words,
    is_allowance,
    question_words,
    refuse_unknown_word,
)

HEAD = ("scale", "stage", "profile", "gate", "import")

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
    "map": 'a table of names, each with the column of a log that holds it, such as loss = "train/nll"',
    "code": "the code or name of a rule or violation, or a pattern",
    "reason": "a text that says why",
    "where": "a pattern of tensors, blocks, heads, scalars or files",
    "until": "a date, such as 2027-01-31",
}

T = TypeVar("T", bound=msgspec.Struct)

POLICY_NAME, PYPROJECT_NAME = "ckaudit.toml", "pyproject.toml"

DOTTED_TABLE = re.compile(rb"tool\s*\.\s*[\"']?ckaudit")
TOOL_TABLE = re.compile(rb"^\s*\[\s*[\"']?tool[\"']?\s*\]", re.MULTILINE)
CKAUDIT_KEY = re.compile(rb"^\s*[\"']?ckaudit[\"']?\s*[.=]", re.MULTILINE)


class PolicyFile(msgspec.Struct, frozen=True):
    """A file and the table in it, which its errors name.

    Attributes:
        file: Name of the file to show.
        prefix: Prefix of the keys in that file.
    """

    file: str
    prefix: str

    def error(self, place: str, what: str, hint: str = "") -> UsageError:
        """Return the error for the value at a place."""
        return UsageError(f"{self.file}: {self.prefix}{place}{what}", hint=hint)

    def table(self, document: object, place: str, allowed: tuple[str, ...]) -> dict[str, Any]:
        """Return a table with only known keys, or raise `UsageError`."""
        if not isinstance(document, dict):
            raise self.error(place, " is not a table", f"its keys are {', '.join(allowed)}")
        for key in document:
            if key not in allowed:
                raise refuse_unknown_word(f"{self.file}: unknown key {self.prefix}{inside(place, key)}", key, allowed)
        return document

    def value(self, value: object, kind: Any, place: str, wanted: str) -> Any:
        """Return a value in the type of its key, or raise `UsageError`."""
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


def read_policy(path: Path, shown: str = "") -> Policy:
    """Read a policy.

    Args:
        path: A TOML file; in a pyproject.toml the table [tool.ckaudit] counts.
        shown: Name of the file in messages; default: the path.

    Raises:
        UsageError: If it cannot be read, a key is unknown, or a value has the wrong type.
    """
    source = PolicyFile(shown or str(path), "tool.ckaudit." if path.name == PYPROJECT_NAME else "")
    document = _parsed(path, source)
    keys = PolicyClauses.__struct_fields__
    table = source.table(document, "", (*HEAD, *keys))
    profiles = source.table(table.get("profile", {}), "profile", PROFILES)
    return Policy(
        file=source.file,
        base=_clauses({key: value for key, value in table.items() if key not in HEAD}, "", source),
        profiles={name: _clauses(profile, f"profile.{name}", source) for name, profile in profiles.items()},
        scale=source.value(table.get("scale"), Scale | None, "scale", WANTED["scale"]),
        stage=source.value(table.get("stage"), Stage | None, "stage", WANTED["stage"]),
        gate=_terms(table["gate"], source) if "gate" in table else None,
        columns=_columns(table.get("import", {}), source),
    )


def _columns(document: object, source: PolicyFile) -> dict[str, str]:
    """Return the log columns that `[import.map]` names."""
    table = source.table(document, "import", ("map",))
    columns: dict[str, str] = source.value(table.get("map", {}), dict[Words, Words], "import.map", WANTED["map"])
    return columns


def _parsed(path: Path, source: PolicyFile) -> object:
    import tomllib

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read {source.file}: {error.strerror}") from None
    except RecursionError:
        raise UsageError(f"{source.file} is nested too deeply", hint="no policy needs more than four levels") from None
    except ValueError as error:
        raise UsageError(f"{source.file} is not TOML: {error}", hint="https://toml.io shows how it is written") from None
    if path.name != PYPROJECT_NAME:
        return document
    tool = document.get("tool")
    if not isinstance(tool, dict) or "ckaudit" not in tool:
        raise UsageError(f"{source.file} has no table [tool.ckaudit]", hint=f"add one, or name a {POLICY_NAME}")
    return tool["ckaudit"]


def _clauses(document: object, place: str, source: PolicyFile) -> PolicyClauses:
    """Return the clauses of one table; nested tables are read first, so that an error names its own key."""
    table = dict(source.table(document, place, PolicyClauses.__struct_fields__))
    if isinstance(ignores := table.get("ignore"), list):
        table["ignore"] = [_ignore(ignore, f"{inside(place, 'ignore')}[{index}]", source) for index, ignore in enumerate(ignores)]
    for name, grade in _items(table, "severities"):
        source.value(grade, Grade, inside(place, f"severities.{name}"), "sev0, sev1, sev2, note or off")
    for name, values in _items(table, "thresholds"):
        source.value(values, dict[str, Any], inside(place, f"thresholds.{name}"), "a table of thresholds")
    return source.struct(table, PolicyClauses, place)


def _ignore(document: object, place: str, source: PolicyFile) -> Ignore:
    return source.struct(source.table(document, place, Ignore.__struct_fields__), Ignore, place)


def _items(table: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    return list(table[key].items()) if isinstance(table.get(key), dict) else []


def _terms(document: object, source: PolicyFile) -> GateTerms:
    """Return the gate's terms, with every word checked as a question and every allowance as a number."""
    table = source.table(document, "gate", GateTerms.__struct_fields__)
    terms = source.struct(table, GateTerms, "gate")
    for place, words in (("gate.questions", terms.questions), ("gate.allow", terms.allow)):
        for word in words:
            if word not in question_words():
                raise refuse_unknown_word(
                    f"{source.file}: {source.prefix}{place}: no question is called {word!r}", word, question_words()
                )
    for word, allowance in terms.allow.items():
        if not is_allowance(allowance):
            raise source.error(f"gate.allow.{word}", f': expected a share such as "10%" or a number from 0 on, got {allowance!r}')
    return terms


def inside(place: str, key: str) -> str:
    """Return the path of a key of a table."""
    return f"{place}.{key}" if place else key


# Place of the policy: `ckaudit.toml`, or `[tool.ckaudit]` of a pyproject.toml, in this folder or one above it.
def find(folder: Path) -> Path | None:
    """Return the nearest policy file at or above a folder; None if there is none.

    The search ends at the root of a repository. A run's own folder is not searched, because a run must not choose its own policy.

    Args:
        folder: Folder where the search begins: the working folder.
    """
    for path in (folder, *folder.parents):
        if (path / POLICY_NAME).is_file():
            return path / POLICY_NAME
        if _holds_a_policy(path / PYPROJECT_NAME):
            return path / PYPROJECT_NAME
        if (path / ".git").exists():
            return None
    return None


def named(path: Path, said_by: str = "--config") -> Path:
    """Return a policy file that the user named in the option or argument `said_by`, or raise `UsageError`."""
    if not path.is_file():
        raise UsageError(
            f"{said_by}: there is no file {path}", hint=f"name a {POLICY_NAME} or a {PYPROJECT_NAME} with [tool.ckaudit]"
        )
    return path


def _holds_a_policy(path: Path) -> bool:
    """Tell whether a pyproject.toml has ckaudit's table; it is parsed as TOML, which is slow, only if the name occurs in it."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    tools = TOOL_TABLE.search(data)
    if not DOTTED_TABLE.search(data) and not (tools and CKAUDIT_KEY.search(data, tools.end())):
        return False
    import tomllib

    try:
        return "ckaudit" in tomllib.loads(data.decode()).get("tool", {})
    except (ValueError, AttributeError, RecursionError):
        return b"tool.ckaudit" in data  # reading it reports what is wrong
