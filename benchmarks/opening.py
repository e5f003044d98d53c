"""How soon a report opens in a real browser: its first picture, the complete page, and the first chart of a tab.

python benchmarks/opening.py [--rounds 7] [--write]

A headless Chromium without a network is restarted for each opening; the reports take turns. Needs the package playwright and a
Chromium, found on the path or named in CKAUDIT_CHROMIUM.
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
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fixtures")]

from checkpoints.honest import grid_heavy, key_heavy  # noqa: E402  the generator stands beside the fixtures
from pairs import machine, write_table  # noqa: E402
from validate import write_run  # noqa: E402  the same data

HEALTHY = HERE.parent / "fixtures" / "runs" / "healthy"
COLUMNS = (
    "report",
    "MB",
    "first picture, s, aim 0.5",
    "slowest of them",
    "ready, s over a blank page, aim 2",
    "first chart of a tab, s",
)
HEAD = f"| {' | '.join(COLUMNS)} |\n" + "|---" * len(COLUMNS) + "|"
BLANK = "<!doctype html><title>blank</title><p>blank"
# Times are taken inside the page, by the browser's own clock, which starts when the opening starts.
LOOK = """
window.seen = {};
const note = (name, there) => { if (there && !(name in window.seen)) window.seen[name] = performance.now() / 1000; };
// A picture has been painted when the second frame after it begins.
let asked = false;
new MutationObserver(() => {
  if (!asked && document.querySelector("svg.picture .curve")) {
    asked = true;
    requestAnimationFrame(() => requestAnimationFrame(() => note("picture", true)));
  }
  note("ready", document.documentElement && document.documentElement.dataset.ready === "yes");
  note("drawn", document.querySelector("[data-drawn=yes]"));
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-drawn", "data-ready"] });
addEventListener("load", () => note("loaded", true));
"""


@dataclass(frozen=True)
class Times:
    """Seconds from the start of the opening of a report."""

    picture: float
    ready: float
    drawn: float


def times_of(driver: Any, address: str, *awaited: str) -> dict[str, float]:
    """Open one address in a restarted browser, and return the time of each awaited event, in seconds.

    Args:
        driver: The playwright driver.
        address: The page to open.
        awaited: Names of the events: picture, ready, drawn or loaded.
    """
    chromium = os.environ.get("CKAUDIT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
    page = browser.new_context(offline=True, viewport={"width": 1280, "height": 900}).new_page()
    page.add_init_script(LOOK)
    page.goto(address)
    end = time.monotonic() + 30
    while not {*awaited} <= {*(times := page.evaluate("window.seen"))}:
        if time.monotonic() > end:
            raise SystemExit(f"{address}: no {' and '.join(awaited)} after 30 s")
        time.sleep(0.02)
    browser.close()
    return dict(times)


def opened(addresses: Mapping[str, str], rounds: int) -> dict[str, list[Times]]:
    """Open each report `rounds` times, in turns, at its first page and at a tab, and return the times."""
    from playwright.sync_api import sync_playwright

    found: dict[str, list[Times]] = {name: [] for name in addresses}
    with sync_playwright() as driver:
        for _ in range(rounds):
            blank = times_of(driver, f"data:text/html,{BLANK}", "loaded")["loaded"]
            for name, address in addresses.items():
                first = times_of(driver, address, "picture", "ready")
                drawn = times_of(driver, f"{address}#t-training", "drawn")["drawn"]
                found[name].append(Times(first["picture"], first["ready"] - blank, drawn))
    return found


def reports(root: Path, files: int) -> dict[str, Path]:
    """Write the runs and their reports."""
    write_run(root / "keys", key_heavy, files, lambda data: data)
    write_run(root / "grids", grid_heavy, files, lambda data: data)
    runs = {
        "the healthy recorded run of 2,000 steps": HEALTHY,
        f"{files:,} checkpoints of 200 KB, 310 tensors": root / "keys",
        f"{files:,} checkpoints of 200 KB, nested grids": root / "grids",
        f"{files:,} checkpoints of 200 KB, beside another such run": root / "keys",
    }
    found = {}
    for name, run in runs.items():
        beside = [str(root / "grids")] if "beside" in name else []
        found[name] = root / f"{run.name}{len(beside)}.html"
        command = [sys.executable, "-m", "ckaudit", "report", str(run), *beside, "-o", str(found[name])]
        # Findings make the exit code 1, which is no failure here.
        if subprocess.run(command, check=False, capture_output=True).returncode > 1:
            raise SystemExit(f"no report of {run}")
    return found


def main() -> None:
    """Print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        made = reports(Path(temporary), wanted.files)
        found = opened({name: path.as_uri() for name, path in made.items()}, wanted.rounds)
        sizes = {name: path.stat().st_size / 1e6 for name, path in made.items()}
    rows = []
    for name, times in found.items():
        pictures = [each.picture for each in times]
        others = " | ".join(f"{median(values):.2f}" for values in zip(*((each.ready, each.drawn) for each in times), strict=True))
        rows.append(f"| {name} | {sizes[name]:.2f} | {median(pictures):.2f} | {max(pictures):.2f} | {others} |")
    table = "\n".join([f"{machine()}; medians of {wanted.rounds} openings.", "", HEAD, *rows])
    print(table)
    if wanted.write:
        write_table("opening", table)


if __name__ == "__main__":
    main()
