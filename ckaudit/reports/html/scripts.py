"""What runs in the file: the charting library, the few scripts of our own, and the policy that allows these and nothing else."""

import gzip
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ckaudit.errors import CkauditError
from ckaudit.optional import install_command
from ckaudit.reports.html.markup import Markup

OWN = ("draw.js", "shapes.js", "tabs.js")
LIBRARY = Path("package_data", "plotly.min.js")
EMPTY = ""  # the library makes one empty style sheet and fills it by the object model


class Library(NamedTuple):
    """The charting library, as a report holds it.

    Attributes:
        packed: Its script as gzip in base64.
        digest: Of the script as it runs.
    """

    packed: str
    digest: str


@cache
def library() -> Library:
    """Return the charting library that its package brings, without importing it.

    Raises:
        CkauditError: Where it is not installed.
    """
    spec = find_spec("plotly")
    place = Path(spec.origin).with_name(LIBRARY.parts[0]) / LIBRARY.name if spec and spec.origin else None
    if place is None or not place.is_file():
        raise CkauditError("the pictures of a report are drawn by plotly, which is not installed", hint=install_command("report"))
    script = place.read_bytes()
    return Library(b64encode(gzip.compress(script, 4, mtime=0)).decode(), digest(script.decode()))


def own(name: str) -> str:
    """Return a script or a style sheet of our own."""
    return files("ckaudit.reports.html").joinpath(name).read_text(encoding="utf-8")


def digest(script: str) -> str:
    """Return how a content security policy names a script: its SHA-256 (W3C Content Security Policy 3, section 2.3.1)."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def policy(library_digest: str) -> str:
    """Return the policy of the file: its own scripts and styles, images out of itself, and no network at all."""
    scripts = " ".join([library_digest, *(digest(own(name)) for name in (*OWN, "start.js"))])
    styles = f"{digest(own('report.css'))} {digest(EMPTY)}"
    parts = ["default-src 'none'", f"script-src {scripts}", f"style-src {styles}", "img-src data:", "base-uri 'none'"]
    return "; ".join([*parts, "form-action 'none'"])


def bodies(packed: str) -> Markup:
    """Return all scripts, in the order in which they run; the packed library is data until the browser unpacks it."""
    runs = "\n".join(f"<script>{own(name)}</script>" for name in (*OWN, "start.js"))
    return Markup(f'<script type="application/gzip" id="library">{packed}</script>\n{runs}')
