"""A policy file read: TOML to clauses, where an unknown key is an error that names its place and the nearest key."""

from pathlib import Path
from typing import Any

from ckaudit.errors import UsageError
from ckaudit.policy.discover import OWN, SHARED
from ckaudit.policy.gate_settings import Terms, is_allowance, known_words
from ckaudit.policy.policy_schema import PROFILES, Clauses, Grade, Ignore, Policy, Scale, Stage
from ckaudit.policy.suggest import refuse
from ckaudit.policy.toml_reader import WANTED, Source, inside

HEAD = ("scale", "stage", "profile", "gate")


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
        scale=source.value(table.get("scale"), Scale | None, "scale", WANTED["scale"]),
        stage=source.value(table.get("stage"), Stage | None, "stage", WANTED["stage"]),
        gate=_terms(table["gate"], source) if "gate" in table else None,
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
    """Return the clauses of one table; what is nested is read first, so that an error names its own key."""
    table = dict(source.table(document, place, Clauses.__struct_fields__))
    if isinstance(ignores := table.get("ignore"), list):
        table["ignore"] = [_ignore(each, f"{inside(place, 'ignore')}[{index}]", source) for index, each in enumerate(ignores)]
    for name, grade in _items(table, "severities"):
        source.value(grade, Grade, inside(place, f"severities.{name}"), "sev0, sev1, sev2, note or off")
    for name, values in _items(table, "thresholds"):
        source.value(values, dict[str, Any], inside(place, f"thresholds.{name}"), "a table of thresholds")
    return source.struct(table, Clauses, place)


def _ignore(document: object, place: str, source: Source) -> Ignore:
    return source.struct(source.table(document, place, Ignore.__struct_fields__), Ignore, place)


def _items(table: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    return list(table[key].items()) if isinstance(table.get(key), dict) else []


def _terms(document: object, source: Source) -> Terms:
    """Return the terms of the gate: every word in them is a question, every allowance a number."""
    table = source.table(document, "gate", Terms.__struct_fields__)
    terms = source.struct(table, Terms, "gate")
    for place, words in (("gate.questions", terms.questions), ("gate.allow", terms.allow)):
        for word in words:
            if word not in known_words():
                raise refuse(f"{source.file}: {source.prefix}{place}: no question is called {word!r}", word, known_words())
    for word, said in terms.allow.items():
        if not is_allowance(said):
            raise source.error(f"gate.allow.{word}", f': expected a share such as "10%" or a number from 0 on, got {said!r}')
    return terms
