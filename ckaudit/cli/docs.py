"""`ckaudit docs`: the documentation in a browser, without a network."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ckaudit.cli.output import say
from ckaudit.errors import UnreadableError

EPILOG = """
\b
Examples:
  ckaudit docs
  ckaudit docs gallery
  ckaudit docs rules --print
\b
The package contains the site. In a clone, `python docs/build_site.py` builds
it below build/site: pip install -e '.[docs]'. The site needs no network.
\b
Exit codes:
  0  opened, or the address was printed
  2  the page does not exist, or the site is not built
"""

PACKAGE = Path(__file__).parents[1]
PLACES = (PACKAGE / "site", PACKAGE.parent / "build" / "site")
"""Possible places of the site: inside the package, or beside it in a clone."""

BUILD = PACKAGE.parent / "docs" / "build_site.py"

Page = Annotated[
    str, typer.Argument(metavar="[PAGE]", help="tutorial, gallery, rules, ... Default: the first page.", show_default=False)
]
Print = Annotated[bool, typer.Option("--print", help="Print the address and open nothing.")]


def command(page: Page = "", *, only_print: Print = False) -> int:
    """Open the documentation in a browser: tutorial, how-to, explanation, gallery and reference, offline."""
    address = found(page).as_uri()
    typer.echo(address)
    if not only_print and not webbrowser.open(address):
        say("no browser could be started: open the address above in one")
    return 0


def found(page: str) -> Path:
    """Return the file of a page.

    Raises:
        UnreadableError: If there is no site, or none of its pages has that name.
    """
    site = next((place for place in PLACES if (place / "index.html").is_file()), None)
    if site is None:
        hint = "python docs/build_site.py builds it; it needs pip install -e '.[docs]'"
        if not BUILD.is_file():
            hint = "it comes with a clone of the repository: python docs/build_site.py builds it there"
        raise UnreadableError("the documentation is not built here", hint=hint)
    pages = {file.stem: file for folder in ("generated", ".") for file in sorted((site / folder).glob("*.html"))}
    if (name := page.removesuffix(".html").removesuffix(".md") or "index") not in pages:
        names = ", ".join(sorted({*pages} - {"404", "index"}))
        raise UnreadableError(f"the documentation has no page {page!r}", hint=f"it has {names}")
    return pages[name]
