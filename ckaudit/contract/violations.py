"""The catalogue of contract violations: each kind has a stable code, a severity and one sentence of help."""

from typing import Any

from msgspec import Struct

from ckaudit.contract.schema.report import Finding, Severity


class ViolationKind(Struct, frozen=True, eq=False):
    """One kind of violation.

    Attributes:
        code: Stable code.
        name: Unique name in words.
        severity: Its severity.
        title: What is wrong, in one sentence.
        help: What to do, in one sentence.
        found_by: The commands that check for it.
    """

    code: str
    name: str
    severity: Severity
    title: str
    help: str
    found_by: tuple[str, ...] = ("validate",)

    def at(self, file: str | None, message: str, **place: Any) -> Finding:
        """Return a finding of this kind; `place` holds any other fields of `Finding`."""
        return Finding(
            code=self.code, name=self.name, severity=self.severity, message=message, file=file, help=self.help, **place
        )


KINDS: dict[str, ViolationKind] = {}


def kind(
    code: str,
    name: str,
    severity: Severity,
    title: str,
    help: str,  # noqa: A002  the field's own name
    *,
    found_by: tuple[str, ...] = ("validate",),
) -> ViolationKind:
    """Register a kind in the catalogue and return it."""
    if code in KINDS:
        raise ValueError(f"code {code} stands twice in the catalogue")
    KINDS[code] = ViolationKind(code, name, severity, title, help, found_by)
    return KINDS[code]


def kinds_of(command: str) -> dict[str, ViolationKind]:
    """Return the kinds that a command checks for, by code, sorted."""
    return {code: entry for code, entry in sorted(KINDS.items()) if command in entry.found_by}


UNREADABLE = kind("SYN001", "unreadable_file", "sev1", "The file cannot be opened.", "Check that it exists and may be read.")
EMPTY = kind("SYN002", "empty_file", "sev1", "The file holds nothing.", "Write to a temporary file and rename it when whole.")
NOT_TEXT = kind(
    "SYN003",
    "not_utf8",
    "sev1",
    "The file is not UTF-8 text.",
    "Write JSON as UTF-8; unpack what is packed, or end its name in .gz or .zst.",
)
BYTE_ORDER_MARK = kind(
    "SYN004", "byte_order_mark", "sev1", "The file starts with a byte order mark.", "Write UTF-8 without one (not utf-8-sig)."
)
TRUNCATED = kind(
    "SYN005", "truncated", "sev1", "The file ends in the middle.", "Write to a temporary file and rename it when whole."
)
NOT_JSON = kind("SYN006", "not_json", "sev1", "The file is not JSON.", "Write one JSON object with a JSON library.")
TOO_DEEP = kind(
    "SYN007", "nested_too_deep", "sev1", "Objects are nested beyond reason.", "A checkpoint needs fewer than ten levels."
)
TOO_LARGE = kind(
    "SYN008",
    "too_large",
    "sev1",
    "The file holds more than is read of one file.",
    "Leave grids out of a checkpoint, or pack them as q8; keep every tenth line of a log.",
)
BARE_NAN = kind(
    "SYN009",
    "bare_nonfinite",
    "sev1",
    "A NaN or infinity stands bare, which JSON forbids.",
    'Write "NaN", "Infinity" or "-Infinity".',
)
DUPLICATE_KEY = kind(
    "SYN010",
    "duplicate_key",
    "sev1",
    "A key stands twice in one object.",
    "Readers keep only one of the two: write each key once.",
)
NUMBER_RANGE = kind(
    "SYN011", "number_out_of_range", "sev1", "A number does not fit a 64-bit float.", 'Write "Infinity", or fix what overflowed.'
)
BAD_COMPRESSION = kind("SYN012", "bad_compression", "sev1", "The compressed file cannot be unpacked.", "Compress it again.")
LINK_OUTSIDE = kind("SYN013", "link_outside", "sev1", "A link leads out of the folder.", "Copy the file into the run folder.")

NO_VERSION = kind("SCH001", "missing_version", "sev1", "schema_version is missing.", 'Write "schema_version": "ck.analysis.v1".')
UNKNOWN_VERSION = kind(
    "SCH002", "unknown_version", "sev1", "schema_version is one this tool does not know.", "Update ckaudit, or convert the file."
)
MISSING_FIELD = kind("SCH003", "missing_field", "sev1", "A required field is missing.", "Write the field.")
WRONG_TYPE = kind("SCH004", "wrong_type", "sev1", "A value has the wrong type.", "See the field in schemas/.")
WRONG_LENGTH = kind("SCH005", "wrong_length", "sev1", "An array has the wrong length.", "See the field's shape in schemas/.")
UNKNOWN_WORD = kind("SCH006", "unknown_word", "sev1", "A word is not one of those allowed.", "Use one of the words in schemas/.")
BELOW_MINIMUM = kind(
    "SCH007", "below_minimum", "sev1", "A number is below what its field can be.", "Look at how it was computed."
)
UNKNOWN_FIELD = kind(
    "SCH008", "unknown_field", "sev2", "A field is not part of this version.", "Check its spelling; nothing reads it."
)
NOT_AN_OBJECT = kind("SCH009", "not_an_object", "sev1", "The document is not a JSON object.", "A checkpoint is one JSON object.")
