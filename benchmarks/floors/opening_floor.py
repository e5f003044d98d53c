"""How soon one chart stands in a page that holds nothing but it and a charting library, from opening to drawn.

    python benchmarks/floors/opening_floor.py [--rounds 7] plotly=plotly.min.js uplot=uPlot.iife.js echarts=echarts.min.js

Two curves of 800 points, in a Chromium without a display, started anew for each page; the pages take turns. `canvas=` is the
same without any library: two strokes. No library in a report can be quicker than here.
"""

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from opening import times_of  # noqa: E402  the same way of looking

STEPS = list(range(800))
CURVES = [[math.exp(-step / scale) + 0.02 * math.sin(step) for step in STEPS] for scale in (200, 300)]
DRAW = {
    "plotly": "Plotly.react(box, ys.map((y) => ({ x, y, mode: 'lines' })), { width: 900, height: 300 })",
    "uplot": """
        const series = [{}, { stroke: "red" }, { stroke: "blue" }];
        new uPlot({ width: 900, height: 300, scales: { x: { time: false } }, series }, [x, ...ys], box)""",
    "echarts": """
        const series = ys.map((y) => ({ type: "line", showSymbol: false, data: y.map((value, i) => [x[i], value]) }));
        echarts.init(box).setOption({ animation: false, xAxis: {}, yAxis: {}, series })""",
    "canvas": """
        const canvas = box.appendChild(Object.assign(document.createElement("canvas"), { width: 900, height: 300 }));
        const pen = canvas.getContext("2d");
        for (const y of ys) { pen.beginPath(); y.forEach((value, i) => pen.lineTo(i, 300 - 280 * value)); pen.stroke(); }""",
}


def page(name: str, script: str) -> str:
    """Return a page that draws with a library of some kind, such as `plotly` in `plotly-basic`."""
    draw = DRAW[name.partition("-")[0]]
    data = f"const box = document.querySelector('div'), x = {json.dumps(STEPS)}, ys = {json.dumps(CURVES)};"
    box = '<div data-chart="one" class="box"></div><style>.box { width: 900px; height: 300px; }</style>'
    body = f"<h1>One chart</h1>{box}<script>{script}</script><script>{data}{draw}; box.dataset.drawn = 'yes';</script>"
    return f"<!doctype html><html><meta charset='utf-8'><body>{body}</body></html>"


def main() -> None:
    """Print one line for each library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("libraries", nargs="+", metavar="NAME=SCRIPT")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        pages = {}
        for name, _, script in (library.partition("=") for library in given.libraries):
            pages[name] = Path(folder, f"{name}.html")
            pages[name].write_text(page(name, Path(script).read_text(encoding="utf-8") if script else ""), encoding="utf-8")
        found: dict[str, list[float]] = {name: [] for name in pages}
        with sync_playwright() as driver:
            for _ in range(given.rounds):
                for name, path in pages.items():
                    found[name].append(times_of(driver, path.as_uri(), "drawn")["drawn"])
    for name, times in found.items():
        print(f"{name}: drawn after {median(times):.2f} s, of {[round(time, 2) for time in times]}")


if __name__ == "__main__":
    main()
