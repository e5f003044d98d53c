"""Explanation of refused documents: every violation of syntax and schema, with its location.

It is slow by design: it runs only on documents that the fast decoder refuses, as a second, independent opinion (Python's own
parser and the `jsonschema` package).
"""

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ckaudit.contract import violations
from ckaudit.contract.io.codec import MAX_DEPTH, is_deep, quote_bare_words
from ckaudit.contract.io.files import MAGIC, archive_of
from ckaudit.contract.io.json_locations import line_at, lines_of, pointer_of, walk
from ckaudit.contract.schema.published import schema
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.violations import ViolationKind

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

TOO_DEEP = f"objects are nested more than {MAX_DEPTH} levels deep"
MAX_SHOWN = 60
MAX_LISTED = 500  # per file; the others show once these are fixed
NULL_FOR_NAN = "; orjson and JavaScript write NaN and infinities as null"
_BOM = "\ufeff"
_HUGE_NUMBER = re.compile(r"(?:^|[\s\[,:])-?\d[\d.]*[eE]\+?\d{3}|\d{200}")  # only such numbers can exceed 1.8e308
_PART = re.compile(r"[-+.\w]+")


class Explanation(Struct, frozen=True):
    """Result of the second opinion.

    Attributes:
        findings: The violations of syntax and schema.
        document: The parsed document, if it could be parsed.
        text: Its text with bare words quoted; None if it could not be parsed.
        bare_words: Number of quoted words.
    """

    findings: list[Finding]
    document: Any = None
    text: bytes | None = None
    bare_words: int = 0


def explain(data: bytes, file: str, version: str, *, first_line: int = 1) -> Explanation:
    """Return every violation of syntax and schema in `data`.

    Args:
        data: The bytes of one JSON document.
        file: Its name in findings.
        version: The contract to check, such as "ck.analysis.v1".
        first_line: Line of the file where the document starts.
    """
    text = _text(data)
    if isinstance(text, ViolationKind):
        return Explanation([text.at(file, not_text(data) if text is violations.NOT_TEXT else text.title)])
    quoted, words = quote_bare_words(text.removeprefix(_BOM).encode())
    text = quoted.decode()
    try:
        document = _parsed(text)
    except RecursionError:
        return Explanation([violations.TOO_DEEP.at(file, TOO_DEEP)])
    except json.JSONDecodeError as error:
        # If the cut is inside a number or word, the parser points at its start.
        rest = text[error.pos :].rstrip()
        partial = text.lstrip().startswith(("{", "[")) and _PART.fullmatch(rest)
        cut = not rest or partial or error.msg.startswith("Unterminated string")
        kind = violations.TRUNCATED if cut else violations.NOT_JSON
        line = first_line + error.lineno - 1
        what = error.msg.lower().removesuffix(" at")
        message = f"{'ends in the middle' if cut else 'is not JSON'}: {what} at column {error.colno}"
        return Explanation([kind.at(file, message, line=line)])
    except ValueError:  # an integer with thousands of digits
        return Explanation(_overflows(text, file, first_line))
    if _is_halved(text, document):
        return Explanation([violations.NOT_TEXT.at(file, "a string holds half of a surrogate pair, which UTF-8 cannot write")])
    findings = [*_overflows(text, file, first_line), *_schema_findings(text, document, file, version, first_line)]
    return Explanation(findings, document, quoted, words)


def _parsed(text: str) -> Any:
    document = json.loads(text)
    if is_deep(document):
        raise RecursionError
    return document


def not_text(head: bytes) -> str:
    """Return why a file that begins with `head` is not text: usually it is packed without a matching suffix."""
    suffix = next((suffix for magic, suffix in MAGIC.items() if head.startswith(magic)), None)
    if archive := archive_of(head):
        return f"The file is {archive}."
    return f"The file is packed, and its name does not end in {suffix}." if suffix else violations.NOT_TEXT.title


def _text(data: bytes) -> str | ViolationKind:
    if not data.strip(b" \t\r\n\0"):
        return violations.EMPTY
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4096]:
        return violations.NOT_TEXT
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        # An incomplete last character shows a cut, not another encoding.
        return violations.TRUNCATED if error.end == len(data) and "unexpected end" in error.reason else violations.NOT_TEXT


def _is_halved(text: str, document: Any) -> bool:
    if "\\ud" not in text.lower():
        return False
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _overflows(text: str, file: str, first_line: int) -> list[Finding]:
    """Return a finding for each number beyond the range of 64-bit floats, which Python would read as infinite."""
    if not _HUGE_NUMBER.search(text):
        return []
    findings = (
        violations.NUMBER_RANGE.at(
            file,
            f"{spot.pointer or 'the document'} holds a number beyond 1.8e308",
            pointer=spot.pointer,
            line=first_line + line_at(text, spot.offset) - 1,
            found=shorten(spot.token),
            expected="a number that fits 64 bits",
        )
        for spot in walk(text)
        if spot.token[0] in "-0123456789" and _overflowing(spot.token)
    )
    return list(islice(findings, MAX_LISTED))


def _overflowing(token: str) -> bool:
    try:
        return math.isinf(float(token))
    except ValueError:
        return False


def _schema_findings(text: str, document: Any, file: str, version: str, first_line: int) -> Iterator[Finding]:
    """Yield a finding for each violation that `jsonschema` finds, with the line of the value."""
    leaves = [nearest_branch(error) for error in islice(_validator(version).iter_errors(document), MAX_LISTED)]
    pointers = [pointer_of(iter(error.absolute_path)) for error in leaves]
    lines = lines_of(text, set(pointers))
    for error, pointer in zip(leaves, pointers, strict=True):
        line = lines.get(pointer)
        yield _finding(error, pointer, file, None if line is None else first_line + line - 1)


@cache
def _validator(version: str) -> "Validator":
    """Return the validator of one contract version, built once."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema(version))


def nearest_branch(error: "ValidationError") -> "ValidationError":
    """Return the branch of an alternative that the value matches best."""
    while error.context:
        deepest = max(len(branch.absolute_path) for branch in error.context)
        near = [branch for branch in error.context if len(branch.absolute_path) == deepest]
        specific = [branch for branch in near if branch.validator not in ("type", "enum")]
        if not specific and deepest == len(error.absolute_path):
            return error
        error = (specific or near)[0]
    return error


_KINDS = {
    "required": violations.MISSING_FIELD,
    "minItems": violations.WRONG_LENGTH,
    "maxItems": violations.WRONG_LENGTH,
    "enum": violations.UNKNOWN_WORD,
    "minimum": violations.BELOW_MINIMUM,
    "maximum": violations.NUMBER_RANGE,
}


def _finding(error: "ValidationError", pointer: str, file: str, line: int | None) -> Finding:
    kind = _kind(error)
    where = pointer or "the document"
    if kind in (violations.MISSING_FIELD, violations.NO_VERSION):
        missing = _missing(error)
        return kind.at(file, f"{where} has no {missing}", pointer=pointer, line=line, expected=missing)
    expected = describe(error.schema)
    found = f"{len(error.instance)} items" if kind is violations.WRONG_LENGTH else shorten(json.dumps(error.instance))
    why = NULL_FOR_NAN if error.instance is None and '"NaN"' in expected else ""
    return kind.at(file, f"{where} is {found}, not {expected}{why}", pointer=pointer, line=line, expected=expected, found=found)


def _missing(error: "ValidationError") -> str:
    """Return the missing property of an error; each one has its own error, and only the message names it."""
    return next(str(name) for name in error.validator_value if error.message.startswith(repr(name)))


def _kind(error: "ValidationError") -> ViolationKind:
    """Return the violation kind of a `jsonschema` error."""
    if error.validator == "required" and _missing(error) == "schema_version":
        return violations.NO_VERSION
    if error.validator == "enum" and list(error.absolute_path) == ["schema_version"] and isinstance(error.instance, str):
        return violations.UNKNOWN_VERSION
    if not error.absolute_path and error.validator == "type":
        return violations.NOT_AN_OBJECT
    if error.validator == "anyOf" and isinstance(error.instance, str) and "number" in describe(error.schema):
        return violations.UNKNOWN_WORD
    if error.validator == "enum" and not isinstance(error.instance, str):
        return violations.WRONG_TYPE
    return _KINDS.get(error.validator, violations.WRONG_TYPE)


def describe(part: dict[str, Any]) -> str:
    """Return in words what a part of the schema requires.

    >>> describe({"anyOf": [{"type": "number", "minimum": 0}, {"enum": ["NaN"]}]})
    'a number of at least 0 or "NaN"'
    """
    if "anyOf" in part:
        return " or ".join(describe(branch) for branch in part["anyOf"])
    if "enum" in part:
        return " or ".join(json.dumps(word) for word in part["enum"])
    if isinstance(part.get("type"), list):
        return " or ".join(describe({"type": name}) for name in part["type"])
    if "$ref" in part:
        return f"a {part['$ref'].rsplit('/', 1)[-1]} object"
    words = {"number": "a number", "integer": "a whole number", "string": "a string", "boolean": "true or false", "null": "null"}
    words |= {"object": "an object", "array": "an array"}
    text = words.get(part.get("type", ""), "something else")
    if "minItems" in part:
        text += f" of {part['minItems']}" + ("" if part.get("maxItems") == part["minItems"] else " or more") + " items"
    return text + (f" of at least {part['minimum']}" if "minimum" in part else "")


def shorten(text: str, *, limit: int = MAX_SHOWN) -> str:
    """Cut `text` to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
