"""What can be wrong with a sample: each fault costs its record or its file, is told, and the rest is read."""

from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from ckaudit.contract.schema.report import Finding
from ckaudit.contract.violations import kind
from ckaudit.material.counts import plural

READERS = ("data", "probe")

NOT_JSON = kind(
    "DAT001", "broken_record", "sev2", "A record is not a JSON object.", "Write one JSON object on each line.", found_by=READERS
)
NOT_UTF8 = kind(
    "DAT002", "record_not_utf8", "sev2", "A record is not UTF-8 text.", "Convert the file to UTF-8.", found_by=READERS
)
TOO_LONG = kind(
    "DAT003", "record_too_long", "sev2", "A record is longer than is read.", "Split it into documents.", found_by=READERS
)
WRONG_TYPE = kind(
    "DAT004",
    "wrong_column_type",
    "sev2",
    "A column holds another type than its meaning asks for.",
    "Map another column.",
    found_by=READERS,
)
NOT_PARQUET = kind(
    "DAT005", "broken_parquet", "sev1", "The file cannot be read as Parquet.", "Write the file again.", found_by=READERS
)

MAX_TOLD = 5

Tell = Callable[[Finding], None]


class Faults:
    """Gathers findings: of each kind and file the first few in full, the rest as a number."""

    def __init__(self) -> None:
        self._told: list[Finding] = []
        self._kinds: dict[tuple[str, str | None], Finding] = {}
        self._counts: Counter[tuple[str, str | None]] = Counter()

    def tell(self, finding: Finding) -> None:
        """Take one finding."""
        key = finding.code, finding.file
        self._counts[key] += 1
        self._kinds.setdefault(key, finding)
        if self._counts[key] <= MAX_TOLD:
            self._told.append(finding)

    def findings(self) -> list[Finding]:
        """Return what was told, and for each kind and file how much more there is."""
        more = []
        for key, count in self._counts.items():
            if count > MAX_TOLD:
                first = self._kinds[key]
                rest = count - MAX_TOLD
                message = f"{plural(rest, 'more record')} like {'this one' if rest == 1 else 'these'}"
                more.append(replace(first, message=message, line=None, points=rest))
        return [*self._told, *more]
