"""The pages of rows that sources cite, such as CAD-1 or EXP-3, where nothing else bears that name."""

from functools import cache
from pathlib import Path

from msgspec import Struct

from ckaudit.explain.page import Page, Section

FILE = Path(__file__).with_name("rows.toml")


class PlaybookRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in the file under a row.

    Attributes:
        title: What the row says.
        text: More of it, and what of ours answers it.
        see: Names that can be explained.
        command: What shows it.
    """

    title: str
    text: str = ""
    see: tuple[str, ...] = ()
    command: str = ""


class PlaybookRows(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file: what each family is about, and each row by its name."""

    families: dict[str, str]
    rows: dict[str, PlaybookRow]


@cache
def cited_rows() -> PlaybookRows:
    """Return all rows.

    Raises:
        msgspec.ValidationError: If the file has a field too many, too few, or of another type.
    """
    import tomllib

    import msgspec

    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), PlaybookRows)


def row_page(name: str) -> Page:
    """Return the page of a row, with the names that answer it and the command that shows it."""
    row = cited_rows().rows[name]
    family, _, number = name.partition("-")
    facts = {"row": f"{number} of {cited_rows().families[family]}"} | ({"shown by": row.command} if row.command else {})
    return Page(
        kind="row",
        name=name,
        title=row.title,
        facts=facts,
        links={"see": row.see} if row.see else {},
        sections=(Section(title="What it says", text=row.text),) if row.text else (),
    )
