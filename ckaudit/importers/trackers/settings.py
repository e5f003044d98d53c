"""Settings that stand plainly on the lines of a YAML file, which needs no library: `NAME: WORD OR NUMBER`."""

import re

from ckaudit.importers.importer import Source
from ckaudit.importers.tables.numbers import number

_LINE = re.compile(r"([\w./-]+): ([^\s#&*!|>%@`{\[][^#]*)")


def plain_settings(file: Source | None) -> dict[str, float | str]:
    """Return the settings of a file, numbers as numbers; lists and what lies deeper are left out."""
    if file is None or file.is_folder:
        return {}
    found = (_LINE.fullmatch(line.rstrip()) for line in file.text.splitlines())
    texts = {match[1]: match[2].strip().strip("'\"") for match in found if match}
    return {name: text if (value := number(text)) is None else _whole(value) for name, text in texts.items()}


def _whole(value: float) -> float:
    return int(value) if value == value // 1 and abs(value) < 2**53 else value
