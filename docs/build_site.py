"""Build the documentation as a site that needs no network: `python docs/build_site.py [FOLDER]`; `ckaudit docs` opens it.

The pages are those of docs/, with the content they have on GitHub. Every target outside of docs/ that they link to becomes a page
too, so that no link leaves the site: a document as it is, any other file as its text. Zensical converts them to HTML and stops at
any warning. Then the script follows every link of every page, and checks that nothing is fetched from elsewhere.
"""  # noqa: INP001

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
DOCS = PurePosixPath("docs")
HOME = PurePosixPath("README.md")  # on the site docs/index.md replaces it
ASSETS = ("*.svg", "*.css", "*.csv", "site.js")
LINK = re.compile(r"(?<=\]\()(?P<path>[^()\s#]*)(?P<anchor>#[^()\s]*)?(?=\))")
CODE = re.compile(r"(`+[^`]+`+)")
FENCE = re.compile(r"\s*(`{3,}|~{3,})(?P<language>\w*)")
ITEM = re.compile(r"(?:[-*+]|1\.) ")
FORMULA = re.compile(r"\$\$(.+?)\$\$")
HEADING = re.compile(r"#{1,6} (?P<words>.*)")
LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml", ".yml": "yaml"}
SHIM = re.compile(r'<script[^>]*"https://unpkg\.com/iframe-worker/shim"[^>]*></script>')
WORKER = """// A page that was opened as a file may load no worker from a file: that of the search is made of this text instead.
if (location.protocol === "file:") {
  const source = new Blob([SOURCE], {type: "text/javascript"});
  window.Worker = class extends Worker { constructor() { super(URL.createObjectURL(source)); } };
}
"""


# From the clone to the pages of the site.
class Pages:
    """The sources of the site, gathered page by page.

    Attributes:
        texts: Each page's Markdown, by its place on the site.
        missing: Links that lead to nothing, as "page: link".
    """

    def __init__(self, formula: Callable[[str], str] | None = None) -> None:
        self.texts: dict[PurePosixPath, str] = {}
        self.missing: list[str] = []
        self._formula = formula

    def add(self, path: PurePosixPath) -> PurePosixPath:
        """Add a file or folder of the clone, and everything that it links to; return its place on the site."""
        place = place_of(path)
        if path not in (HOME, *self.texts) and place not in self.texts:
            self.texts[place] = ""  # marks the page as in progress, because it may link to itself
            if path.suffix == ".md" or (ROOT / path / "README.md").is_file():
                document = path if path.suffix == ".md" else path / "README.md"
                self.texts[place] = self._page(document, place)
            else:
                self.texts[place] = "".join(_as_text(path))
        return place

    def _page(self, path: PurePosixPath, place: PurePosixPath) -> str:
        """Return a document with the site's links, and with the anchors that GitHub gives to headings."""
        anchors: Counter[str] = Counter()
        lines, fence, mermaid = [], "", list[str]()
        for line in (ROOT / path).read_text(encoding="utf-8").splitlines():
            if found := FENCE.match(line):
                opened = not fence
                fence = found[1] if opened else "" if found[1].startswith(fence) and not found["language"] else fence
                if found["language"] == "mermaid" or (mermaid and not fence):
                    lines += [] if opened else _as_table(mermaid)
                    mermaid = ["graph"] if opened else []
                    continue
            if mermaid:
                mermaid.append(line)
            elif fence or found:
                lines.append(line)
            else:
                if ITEM.match(line) and lines and lines[-1] and not lines[-1].startswith(" ") and not ITEM.match(lines[-1]):
                    lines.append("")  # Python's Markdown starts no list within a paragraph
                lines.append(_with_anchor(self._drawn(self._linked(line, path, place)), anchors))
        return "\n".join(lines) + "\n"

    def _drawn(self, line: str) -> str:
        """Return a line with its formulas drawn, if a drawing function was given."""
        formula = self._formula
        return FORMULA.sub(lambda found: formula(found[1]), line) if formula else line

    def _linked(self, line: str, path: PurePosixPath, place: PurePosixPath) -> str:
        def target(found: re.Match[str]) -> str:
            link, anchor = found["path"], found["anchor"] or ""
            if not link or urlsplit(link).scheme:
                return found[0]
            goal = PurePosixPath(os.path.normpath(path.parent / unquote(link)))
            if not (ROOT / goal).exists() or goal.parts[:1] == ("..",):
                self.missing.append(f"{path}: {link}")
                return found[0]
            asset = goal.parts[0] == "docs" and any(goal.match(pattern) for pattern in ASSETS)
            there = goal.relative_to(DOCS) if asset else self.add(goal)
            return os.path.relpath(there, place.parent) + anchor

        parts = CODE.split(line)
        return "".join(part if number % 2 else LINK.sub(target, part) for number, part in enumerate(parts))


def place_of(path: PurePosixPath) -> PurePosixPath:
    """Return the place of a file or folder of the clone on the site.

    >>> place_of(PurePosixPath("docs/watch.md")), place_of(PurePosixPath("schemas/ck.run.v1.schema.json"))
    (PurePosixPath('watch.md'), PurePosixPath('clone/schemas/ck.run.v1.schema.json.md'))
    """
    if path == HOME:
        return PurePosixPath("index.md")
    own = path.relative_to(DOCS) if path.is_relative_to(DOCS) else "clone" / path
    if (ROOT / path).is_dir():
        return own / ("README.md" if (ROOT / path / "README.md").is_file() else "index.md")
    return own if path.suffix == ".md" else own.with_name(f"{own.name}.md")


def _as_text(path: PurePosixPath) -> Iterator[str]:
    """Yield a page with the text of a file, or of all files of a folder."""
    yield f"---\nsearch:\n  exclude: true\n---\n\n# `{path}`\n"
    whole = ROOT / path
    for file in [whole] if whole.is_file() else sorted(each for each in whole.rglob("*") if each.is_file()):
        if "__pycache__" not in file.parts:
            yield f"\n## `{file.relative_to(ROOT).as_posix()}`\n" if whole.is_dir() else ""
            text = file.read_text(encoding="utf-8")
            yield f"\n~~~~{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n~~~~\n"


def _as_table(mermaid: list[str]) -> list[str]:
    """Return the arrows of a Mermaid drawing as a table, because Mermaid itself would have to be fetched."""
    arrows: dict[str, list[str]] = {}
    for line in mermaid:
        start, arrow, end = line.strip().partition(" --> ")
        if arrow:
            arrows.setdefault(start, []).append(f"`{end}`")
    return ["| package | imports |", "|---|---|", *(f"| `{start}` | {', '.join(ends)} |" for start, ends in arrows.items())]


def anchor_of(heading: str) -> str:
    """Return the anchor that GitHub gives a heading.

    >>> anchor_of("Tools: `ckaudit mcp`"), anchor_of("Right, and sure?")
    ('tools-ckaudit-mcp', 'right-and-sure')
    """
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("\\", "")
    return re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")


def _with_anchor(line: str, anchors: Counter[str]) -> str:
    found = HEADING.fullmatch(line)
    if not found:
        return line
    anchor = anchor_of(found["words"])
    anchors[anchor] += 1
    nth = anchors[anchor] - 1
    return f"{line} {{#{anchor}{f'-{nth}' if nth else ''}}}"


def gathered(formula: Callable[[str], str] | None = None) -> Mapping[PurePosixPath, str]:
    """Return every page of the site, by its place; a broken link ends the program.

    Args:
        formula: Draws a LaTeX formula; without it formulas are left as they are.
    """
    pages = Pages(formula)
    for file in sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "generated").glob("*.md")]):
        pages.add(PurePosixPath(file.relative_to(ROOT).as_posix()))
    for file in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        pages.add(PurePosixPath(file.relative_to(ROOT).as_posix()))
    if pages.missing:
        raise SystemExit("links that lead to nothing:\n  " + "\n  ".join(pages.missing))
    return pages.texts


# From the pages to HTML.
def as_mathml(latex: str) -> str:
    """Return a LaTeX formula as MathML, which a browser draws without a script."""
    from latex2mathml.converter import convert

    return f'<span class="formula">{convert(latex)}</span>'


def build(into: Path = BUILD) -> Path:
    """Write the site below a folder and return its path."""
    runpy.run_path(str(ROOT / "docs" / "make.py"), run_name="__main__")
    source, site = into / "site-source", into / "site"
    for folder in (source, site):
        shutil.rmtree(folder, ignore_errors=True)
    for place, text in gathered(as_mathml).items():
        (source / place).parent.mkdir(parents=True, exist_ok=True)
        (source / place).write_text(text, encoding="utf-8")
    for pattern in ASSETS:
        for file in (ROOT / "docs").rglob(pattern):
            copied = source / file.relative_to(ROOT / "docs")
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copied)
    shutil.copy(ROOT / "zensical.toml", into)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=into, env={**os.environ, "NO_COLOR": "1"}, check=False)  # noqa: S603  our own
    if done.returncode:
        raise SystemExit("Zensical could not build the site without warnings")
    embed_search_worker(site)
    if wrong := [*broken_links(site), *fetched(site)]:
        raise SystemExit("\n".join(["not a site that is whole and needs no network:", *wrong[:20]]))
    return site


def embed_search_worker(site: Path) -> None:
    """Replace the one script that Zensical fetches, which makes the search work in pages opened as files, by one of the site."""
    (worker,) = (site / "assets" / "javascripts" / "workers").glob("search.*.js")
    script = site / "assets" / "search-in-files.js"
    script.write_text(WORKER.replace("SOURCE", json.dumps(worker.read_text(encoding="utf-8"))), encoding="utf-8")
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        way = os.path.relpath(script, page.parent)
        page.write_text(SHIM.sub(f'<script src="{Path(way).as_posix()}"></script>', text), encoding="utf-8")


class _Read(HTMLParser):
    """The anchors and links of a page, and what a browser loads for it."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        had = {name: value or "" for name, value in attrs}
        self.anchors.update(had[name] for name in ("id", "name") if name in had)
        if tag == "a" and "href" in had:
            self.links.append(had["href"])
        elif tag == "link" and not {"canonical", "next", "prev"} & {*had.get("rel", "").split()}:
            self.loaded.append(had.get("href", ""))
        self.loaded += [had[name] for name in ("src", "data", "poster") if tag != "a" and name in had]


def _read(page: Path) -> _Read:
    return _parsed(page.read_text(encoding="utf-8"))


@cache
def _parsed(text: str) -> _Read:
    reader = _Read()
    reader.feed(text)
    return reader


def broken_links(site: Path) -> Iterator[str]:
    """Yield each link of a page to a missing file or anchor."""
    site = site.resolve()
    pages = {page: _read(page) for page in site.rglob("*.html") if page.name != "404.html"}
    for page, read in pages.items():
        for link in dict.fromkeys([*read.links, *read.loaded]):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            goal = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            is_page = goal in pages
            if not goal.is_file() or (parts.fragment and is_page and unquote(parts.fragment) not in pages[goal].anchors):
                yield f"{page.relative_to(site)}: {link}"


def fetched(site: Path) -> Iterator[str]:
    """Yield what a page or a style sheet would load from elsewhere."""
    for page in site.rglob("*.html"):
        yield from (f"{page.relative_to(site)}: {link}" for link in _read(page).loaded if urlsplit(link).netloc)
    for sheet in site.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", sheet.read_text(encoding="utf-8"))
        yield from (f"{sheet.relative_to(site)}: {link}" for link in found)


if __name__ == "__main__":
    built = build()
    print(f"{sum(1 for _ in built.rglob('*.html'))} pages in {built.relative_to(ROOT)}; ckaudit docs opens them")  # noqa: T201
    for copy in sys.argv[1:]:  # the copy in ckaudit/site goes into the wheel
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(built, copy)
