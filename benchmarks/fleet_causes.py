"""How often a planted common cause of a fleet is found, and how often one is reported that does not exist.

    python benchmarks/fleet_causes.py [--fleets 200] [--healthy 1000] [--seed 0] [--write]

A made-up fleet has 50 to 2,000 runs, of which 2 to 20 % are ill for their own reasons. It imitates real fleets: launches in
bursts, successive commits, settings that correlate with each other, with the commit or with the node, numbers drawn at random,
seeds and folders of each run, logs in which little can be judged, first steps that many runs share because a rule or a
checkpoint begins there. Then, or not, one cause is planted in some of its runs. `--write` puts the tables into README.md.
"""

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from ckaudit.contract.schema.fleet import CommonCause, FleetFinding, FleetRun  # noqa: E402
from ckaudit.fleet.common_causes import common_causes  # noqa: E402

README = Path(__file__).parent / "README.md"
MARK, END = "<!-- fleet causes: written by benchmarks/fleet_causes.py -->", "<!-- end of fleet causes -->"
FIRST_START = 1_780_000_000.0
DAY = 86_400.0
CODES = (
    "NUM001",
    "LOSS001",
    "LOSS003",
    "LOSS004",
    "GRD001",
    "GRD004",
    "ACT002",
    "ATT001",
    "UPD002",
    "SYS003",
    "DATA002",
    "EVL001",
)
"""Findings with made-up frequencies; of the codes that begin with LOSS, NUM or SYS the first half is also seen in logs."""
IN_LOGS = ("NUM001", "LOSS001", "LOSS003", "LOSS004", "SYS003", "EVL001")
FOLLOWS = {"NUM001": ("LOSS001", "GRD001"), "GRD001": ("LOSS004",), "ACT002": ("ATT001",), "UPD002": ("LOSS003",)}
BEGINS_AT = {"LOSS001": 21, "LOSS003": 201, "ACT002": 100, "DATA002": 0, "EVL001": 1000, "UPD002": 50}
"""First steps that a rule itself gives to most of its findings."""
ON_CHECKPOINTS = ("ACT002", "ATT001", "UPD002", "GRD004")
KINDS = ("node", "device", "commit", "value", "threshold", "window", "step", "step of the only order")


class Planted(NamedTuple):
    """A planted cause: its kind, its name, and the runs that it made ill."""

    kind: str
    name: str
    value: str
    code: str
    runs: frozenset[str]
    exposed: int


def grouped(rng: np.random.Generator, count: int, groups: int) -> np.ndarray:
    """Return a group for each run, with some large and many small groups."""
    weights = 1 / np.arange(1, groups + 1) ** rng.uniform(0, 1.2)
    return rng.choice(groups, count, p=weights / weights.sum())


class FleetDraw(NamedTuple):
    """The draws for a whole fleet; every array has an entry for each run."""

    start: np.ndarray
    commit: np.ndarray
    node: np.ndarray
    model: np.ndarray
    lr: np.ndarray
    batch: np.ndarray
    dataset: np.ndarray
    seed: np.ndarray
    image: np.ndarray
    flags: list[tuple[str, np.ndarray]]
    words: list[tuple[str, np.ndarray]]
    noise: list[tuple[str, np.ndarray]]
    only_order: str
    since: int
    is_order_known: bool
    has_tags: np.ndarray


def drawn_fleet(rng: np.random.Generator, count: int) -> FleetDraw:
    """Draw launches, commits, nodes, hyperparameters and settings like those of a group of people."""
    launches = np.sort(rng.uniform(0, 60 * DAY, max(3, count // int(rng.integers(5, 25)))))
    start = np.sort(FIRST_START + rng.choice(launches, count) + rng.exponential(1200, count))
    commit = np.searchsorted(np.sort(rng.uniform(start[0], start[-1], int(rng.integers(4, 30)))), start)
    node = grouped(rng, count, int(rng.integers(8, 60)))
    model = grouped(rng, count, int(rng.integers(2, 6)))
    free = rng.random() < 0.5
    lr = 10 ** rng.uniform(-5, -1, count) if free else 10.0 ** -rng.integers(1, 6, count)
    return FleetDraw(
        start,
        commit,
        node,
        model,
        lr=np.where(rng.random(count) < 0.5, lr, lr[0] * 0.5**model) if rng.random() < 0.5 else lr,
        batch=2 ** np.clip(rng.integers(3, 8, count) - model // 2, 2, 8),
        dataset=grouped(rng, count, int(rng.integers(1, 5))),
        seed=[np.full(count, 42), rng.integers(0, 8, count), rng.integers(0, 100_000, count)][int(rng.integers(3))],
        image=np.where(rng.random(count) < 0.95, node % 4, rng.integers(0, 4, count)),
        flags=[(f"config.flag_{at}", rng.random(count) < rng.uniform(0.02, 0.98)) for at in range(int(rng.integers(3, 25)))],
        words=[(f"config.kind_{at}", grouped(rng, count, int(rng.integers(2, 12)))) for at in range(int(rng.integers(2, 12)))],
        noise=[(f"config.value_{at}", rng.normal(size=count).round(4)) for at in range(int(rng.integers(0, 8)))],
        only_order="0ne0rder" if rng.random() < 0.2 else "",
        since=int(rng.integers(0, commit.max() + 1)),
        is_order_known=rng.random() < 0.7,
        has_tags=rng.random(count) < 0.8,
    )


def facts_of_run(rng: np.random.Generator, fleet: FleetDraw, at: int) -> dict[str, str]:
    """Return the facts of one run of a fleet."""
    facts = {
        "name": f"run-{at:05d}",
        "start": f"{fleet.start[at]:.3f}",
        "git.commit": f"c{fleet.commit[at]:07x}",
        "node": f"gpu-{fleet.node[at]:02d}",
        "device": f"GPU-{fleet.node[at]:02d}-{rng.integers(8)}",
        "seed": str(fleet.seed[at]),
        "config.lr": f"{fleet.lr[at]:.4g}",
        "config.batch_size": str(fleet.batch[at]),
        "config.model": f"m{fleet.model[at]}",
        "config.layers": str(6 * 2 ** fleet.model[at]),
        "config.dataset": f"d{fleet.dataset[at]}",
        "config.output_dir": f"/runs/run-{at:05d}",
        "config.job_id": str(500_000 + 3 * at),
        "config.port": str(rng.integers(20_000, 60_000)),
        "config.image": f"v{fleet.image[at]}",
        "config.user": f"user{(fleet.node[at] // 4 + rng.integers(2)) % 9}",
        "config.optimizer": "adamw",
        "environment.torch": f"2.{10 + fleet.commit[at] // 8}.0",
    }
    facts |= {name: str(bool(values[at])).lower() for name, values in fleet.flags}
    facts |= {name: f"k{values[at]}" for name, values in fleet.words} | {name: str(values[at]) for name, values in fleet.noise}
    if fleet.commit[at] >= fleet.since:
        facts["config.new_path"] = "true"
    if fleet.has_tags[at]:
        facts["config.tags"] = f"t{rng.integers(6)}"
    if fleet.is_order_known:
        order = hash((int(fleet.seed[at]), int(fleet.dataset[at]), int(fleet.batch[at]))) & 0xFFFFFFFF
        facts["data_order"] = fleet.only_order or f"{order:08x}"
    return facts


def facts_of_fleet(rng: np.random.Generator, count: int) -> list[dict[str, str]]:
    """Return the facts of a fleet's runs."""
    fleet = drawn_fleet(rng, count)
    return [facts_of_run(rng, fleet, at) for at in range(count)]


def first_step(rng: np.random.Generator, code: str, last: int) -> int:
    """Return the first step of an illness that has nothing to do with the data."""
    if code in BEGINS_AT and rng.random() < 0.7:
        return min(BEGINS_AT[code], last)
    step = int(rng.integers(1, last + 1))
    return step // 100 * 100 if code in ON_CHECKPOINTS else step


def findings_of(rng: np.random.Generator, code: str, step: int, *, log: bool) -> list[FleetFinding]:
    """Return a finding and the findings that follow from it."""
    codes = [code, *(other for other in FOLLOWS.get(code, ()) if rng.random() < 0.7)]
    seen = [one for one in codes if not log or one in IN_LOGS]
    return [
        FleetFinding(code=one, name=f"name_of_{one.lower()}", severity="sev1", message="", first_step=step + at)
        for at, one in enumerate(seen)
    ]


def made_fleet(rng: np.random.Generator, count: int) -> list[FleetRun]:
    """Return a fleet in which each run is ill for its own reasons, or healthy."""
    rate, weights = rng.uniform(0.02, 0.2), rng.dirichlet(np.full(len(CODES), 0.7))
    length = 10 ** rng.uniform(3, 5)
    runs = []
    for at, facts in enumerate(facts_of_fleet(rng, count)):
        last, log = int(length * rng.uniform(0.3, 1)), rng.random() < 0.2
        found: list[FleetFinding] = []
        if rng.random() < rate:
            code = str(rng.choice(CODES, p=weights))
            found = findings_of(rng, code, first_step(rng, code, last), log=log)
        if rng.random() < 0.3:
            found.append(FleetFinding(code="LOSS009", name="a_note", severity="note", message="", first_step=10))
        vital = {"loss_falls": "well", "gradients_reach": "not_judged" if log else "well"}
        judged = "limited" if log else "all"
        runs.append(
            FleetRun(
                run=f"runs/{at:05d}", status="audited", judged=judged, last_step=last, vital=vital, findings=found, facts=facts
            )
        )
    return runs


def groups_of(runs: list[FleetRun], name: str, least: int, most: int) -> list[str]:
    """Return the values of a fact that between `least` and `most` runs have."""
    counts = Counter(run.facts[name] for run in runs if name in run.facts)
    return sorted(value for value, count in counts.items() if least <= count <= most)


def exposed_to(rng: np.random.Generator, runs: list[FleetRun], kind: str) -> tuple[str, str, list[int]] | None:
    """Return fact, value and positions of the runs that a cause of the kind would affect; None if the fleet has no such group."""
    names = {"node": "node", "device": "device", "commit": "git.commit", "step": "data_order"}
    count = len(runs)
    if kind == "step of the only order":
        chosen = rng.choice(count, max(8, int(count * rng.uniform(0.05, 0.4))), replace=False)
        return ("data_order", "", chosen.tolist()) if runs[0].facts.get("data_order") == "0ne0rder" else None
    if kind == "threshold":
        numbers = np.array([float(run.facts["config.lr"]) for run in runs])
        cut = np.quantile(numbers, rng.uniform(0.7, 0.95), method="nearest")
        chosen = np.flatnonzero(numbers >= cut)
        return (
            (
                "config.lr",
                f">= {runs[int(numbers.argsort()[np.searchsorted(np.sort(numbers), cut)])].facts['config.lr']}",
                chosen.tolist(),
            )
            if 6 <= chosen.size <= count // 2
            else None
        )
    if kind == "window":
        starts = np.array([float(run.facts["start"]) for run in runs])
        begin = rng.uniform(starts.min(), starts.max())
        chosen = np.flatnonzero((starts >= begin) & (starts < begin + rng.uniform(0.2, 5) * DAY))
        return ("start", f"{begin}", chosen.tolist()) if 6 <= chosen.size <= count // 2 else None
    name = names.get(kind) or str(rng.choice([name for name in runs[0].facts if re.search("flag|kind|model|image|user", name)]))
    values = groups_of(runs, name, 6, count // 2)
    if not values:
        return None
    value = str(rng.choice(values))
    return name, value, [at for at, run in enumerate(runs) if run.facts.get(name) == value]


def plant(rng: np.random.Generator, runs: list[FleetRun], kind: str) -> tuple[list[FleetRun], Planted] | None:
    """Return the fleet with a cause of the kind in it, which makes 50 to 95 % of the affected runs ill."""
    met = exposed_to(rng, runs, kind)
    if met is None:
        return None
    name, value, places = met
    code, attack = str(rng.choice(IN_LOGS if kind != KINDS[-1] else ("NUM001", "LOSS001"))), rng.uniform(0.5, 0.95)
    step = int(rng.integers(50, min(runs[at].last_step or 0 for at in places) + 1))
    ill = [at for at in places if rng.random() < attack]
    if len(ill) < 5:
        return None
    planted = list(runs)
    for at in ill:
        last = runs[at].last_step or 0
        found = findings_of(rng, code, step if "step" in kind else first_step(rng, code, last), log=False)
        planted[at] = replace(
            runs[at], findings=[*found, *(one for one in runs[at].findings if one.code not in {f.code for f in found})]
        )
    shown = str(step) if "step" in kind else value
    return planted, Planted(
        kind, "step" if "step" in kind else name, shown, code, frozenset(runs[at].run for at in ill), len(places)
    )


def names_it(cause: CommonCause, planted: Planted) -> bool:
    """Return whether a reported cause names the planted one, as itself or beside itself."""
    if planted.kind in {"threshold", "window"}:
        return f"{planted.name} " in f"{cause.name} {cause.sentence}"
    if planted.name == "step" and cause.field == "step":  # a finding that follows begins a step or two later
        return abs(int(cause.value) - int(planted.value)) <= 2
    return (cause.name, cause.value) == (planted.name, planted.value) or f"{planted.name} {planted.value}" in cause.sentence


def of_it(cause: CommonCause, planted: Planted) -> bool:
    """Return whether a reported cause concerns the runs that were made ill."""
    return len(planted.runs & set(cause.runs)) >= 0.5 * len(cause.runs)


def fleets(seed: int, count: int, kind: str | None) -> Iterator[tuple[list[FleetRun], Planted | None]]:
    """Yield `count` fleets, with a cause of the kind or without any."""
    number = 0
    while count:
        rng = np.random.default_rng([seed, number, 0 if kind is None else 1 + KINDS.index(kind)])
        number += 1
        runs = made_fleet(rng, int(50 * 40 ** rng.random()))
        made: tuple[list[FleetRun], Planted | None] | None = (runs, None) if kind is None else plant(rng, runs, kind)
        if made is not None:
            count -= 1
            yield made


def measured(kind: str, seed: int, count: int, show: Callable[[str], None]) -> str:
    """Return a row of the table: how many of the planted causes are found, and what else is reported."""
    found, named, wrong, by_size = 0, 0, 0, {"5-7": [0, 0], "8-15": [0, 0], "16-": [0, 0]}
    for runs, planted in fleets(seed, count, kind):
        assert planted is not None
        told = common_causes(runs)
        hit = any(names_it(cause, planted) and of_it(cause, planted) for cause in told)
        size = len(planted.runs)
        cell = by_size["5-7" if size < 8 else "8-15" if size < 16 else "16-"]
        cell[0] += hit
        cell[1] += 1
        found += hit
        named += bool(told) and names_it(told[0], planted) and of_it(told[0], planted)
        false = [cause for cause in told if not of_it(cause, planted)]
        wrong += bool(false)
        if not hit or false:
            show(f"{kind} of {len(runs)}: {planted._replace(runs=frozenset())} met {planted.exposed}, ill {size}; told:")
            for cause in told:
                show(
                    f"    {cause.name} {cause.value} {cause.code} p={cause.p_value:.1e} {cause.adjusted_p:.1e}: {cause.sentence}"
                )
    sizes = " | ".join(f"{hit}/{of}" for hit, of in by_size.values())
    return f"| {kind} | {count} | {found / count:.1%} | {sizes} | {named / count:.1%} | {wrong} |"


def invented(seed: int, count: int, show: Callable[[str], None]) -> str:
    """Return in how many fleets without a cause one is reported."""
    wrong = 0
    for runs, _ in fleets(seed, count, None):
        told = common_causes(runs)
        wrong += bool(told)
        for cause in told:
            show(f"none of {len(runs)}: {cause.name} {cause.value} {cause.code} {cause.adjusted_p:.1e}: {cause.sentence}")
    return f"Of {count:,} fleets without a cause, {wrong} were told of one."


def cost(seed: int) -> str:
    """Return the cost of 10,000 runs with some 50 facts."""
    rng = np.random.default_rng(seed)
    runs = made_fleet(rng, 10_000)
    before = time.perf_counter()
    common_causes(runs)
    facts = np.mean([len(run.facts) for run in runs])
    return f"10,000 runs with {facts:.0f} facts each: {time.perf_counter() - before:.1f} s."


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", type=int, default=200)
    parser.add_argument("--healthy", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--show", action="store_true", help="print what was missed and what was invented")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    show = print if given.show else lambda _: None
    lines = ["| planted | fleets | found | 5-7 ill | 8-15 ill | 16 and more | told first | with another that is none |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for kind in filter(None, given.kinds.split(",")):
        lines.append(measured(kind, given.seed, given.fleets, show))
        print(lines[-1], flush=True)
    lines += ["", invented(given.seed, given.healthy, show), "", cost(given.seed)]
    print("\n".join(lines))
    if given.write:
        text = README.read_text(encoding="utf-8")
        before, after = text.split(MARK)[0], text.split(END)[1]
        README.write_text(f"{before}{MARK}\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
