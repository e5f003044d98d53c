"""How soon a report stands there: from opening the file to its text, and to the first chart drawn, in a real browser.

python benchmarks/opening.py [--rounds 7] [--write]

Chromium without a display and without a network is started anew for each opening; the reports take turns. Needs the package
playwright and a Chromium, found on the path or named in CKAUDIT_CHROMIUM.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fixtures")]

from checkpoints.honest import grid_heavy, key_heavy  # noqa: E402  the generator stands beside the fixtures
from pairs import machine, write_table  # noqa: E402
from validate import write_run  # noqa: E402  the same data

HEALTHY = HERE.parent / "fixtures" / "runs" / "healthy"
HEAD = "| report | MB | text, s | first chart, s | slowest of them | aim |\n" + "|---" * 6 + "|"
# Times are taken inside the page, by the browser's own clock, which begins when the opening does.
LOOK = """
window.seen = {};
const note = (name, there) => { if (there && !(name in window.seen)) window.seen[name] = performance.now() / 1000; };
new MutationObserver(() => {
  note("text", document.querySelector("h1"));
  note("drawn", document.querySelector("[data-drawn=yes]"));
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-drawn"] });
"""


@dataclass(frozen=True)
class Times:
    """Seconds from the start of the opening until the text was there, and the first chart."""

    text: float
    drawn: float


def opened(addresses: Mapping[str, str], rounds: int) -> dict[str, list[Times]]:
    """Open each address so many times, in turns, and return when things stood there."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CKAUDIT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    found: dict[str, list[Times]] = {name: [] for name in addresses}
    with sync_playwright() as driver:
        for _ in range(rounds):
            for name, address in addresses.items():
                browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                page = browser.new_context(offline=True, viewport={"width": 1280, "height": 900}).new_page()
                page.add_init_script(LOOK)
                page.goto(address)
                end = time.monotonic() + 30
                while "drawn" not in (seen := page.evaluate("window.seen")):
                    if time.monotonic() > end:
                        raise SystemExit(f"{name}: no chart after 30 s")
                    time.sleep(0.02)
                found[name].append(Times(seen["text"], seen["drawn"]))
                browser.close()
    return found


def reports(root: Path, files: int) -> dict[str, Path]:
    """Write the runs of which reports are opened, and the reports."""
    write_run(root / "keys", key_heavy, files, lambda data: data)
    write_run(root / "grids", grid_heavy, files, lambda data: data)
    runs = {
        "the healthy recorded run of 2,000 steps": HEALTHY,
        f"{files:,} checkpoints of 200 KB, 310 tensors": root / "keys",
        f"{files:,} checkpoints of 200 KB, nested grids": root / "grids",
    }
    found = {}
    for name, run in runs.items():
        found[name] = root / f"{run.name}.html"
        command = [sys.executable, "-m", "ckaudit", "report", str(run), "-o", str(found[name])]
        subprocess.run(command, check=True, capture_output=True)
    return found


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        made = reports(Path(temporary), wanted.files)
        found = opened({name: f"{path.as_uri()}#t-training" for name, path in made.items()}, wanted.rounds)
        sizes = {name: path.stat().st_size / 1e6 for name, path in made.items()}
    rows = []
    for name, times in found.items():
        drawn = [each.drawn for each in times]
        text = median(each.text for each in times)
        rows.append(f"| {name} | {sizes[name]:.2f} | {text:.2f} | {median(drawn):.2f} | {max(drawn):.2f} | 1 |")
    table = "\n".join([f"{machine()}; medians of {wanted.rounds} openings.", "", HEAD, *rows])
    print(table)
    if wanted.write:
        write_table("opening", table)


if __name__ == "__main__":
    main()
