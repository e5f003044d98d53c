"""The pages of rows that sources cite, such as TRI-4 or SEV1-3, where no metric, question or gate bears that name."""

from functools import cache
from pathlib import Path

from msgspec import Struct

from ckaudit.explain.page import Page, Section
from ckaudit.questions.phases import MAP

FILE = Path(__file__).with_name("rows.toml")
WAYS = {way.id: way for way in MAP}


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class Rows(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file: what each family is about, and each row by its name."""

    families: dict[str, str]
    rows: dict[str, Row]


@cache
def cited_rows() -> Rows:
    """Return all rows.

    Raises:
        msgspec.ValidationError: If the file has a field too many, too few, or of another type.
    """
    import tomllib

    import msgspec

    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), Rows)


def row_page(name: str) -> Page:
    """Return the page of a row, with the names that answer it and the command that shows it."""
    row, way = cited_rows().rows[name], WAYS.get(name)
    family, _, number = name.partition("-")
    command = row.command
    if way:
        command = way.command.format(run="RUN", event="last") or f"ckaudit metrics RUN {' '.join(way.metrics)}"
    facts = {"row": f"{number} of {cited_rows().families[family]}"} | ({"shown by": command} if command else {})
    return Page(
        kind="row",
        name=name,
        title=row.title,
        facts=facts,
        links={"see": row.see} if row.see else {},
        sections=(Section(title="What it says", text=row.text),) if row.text else (),
    )
