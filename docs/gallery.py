"""Write docs/gallery.md and its pictures: `python docs/gallery.py CACHE`, a folder that `ckaudit lab record` filled.

For each fault below, the recordings of the fault and of the healthy training of the same family and seed are unpacked. The page
shows the output of `ckaudit triage` and `ckaudit report` for them.
"""  # noqa: INP001

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ckaudit import __version__
from ckaudit.contract.schema.report import Report
from ckaudit.lab import archive
from ckaudit.lab.cache import default_folder
from ckaudit.lab.specs import Fault, faults
from ckaudit.lab.training_spec import HEALTHY
from ckaudit.reports.escape import backticks as code
from ckaudit.reports.escape import prose as text
from ckaudit.reports.lab.catalogue import in_numbers
from ckaudit.reports.words import standing

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "gallery"
SEED = 0
MOST_BYTES = 1_500_000

SHOWN: Mapping[str, Sequence[str]] = {
    "The learning rate and what it is multiplied with": (
        *("lr_too_high", "lr_too_low", "no_warmup", "warmup_never_ends"),
        *("lr_decay_early", "clip_tiny", "weight_decay_20", "sgd_instead"),
    ),
    "The code of the model and of the loop": (
        *("zero_proj", "frozen_layer", "missing_in_optimizer", "mask_off_by_one"),
        *("no_zero_grad", "skip_updates", "labels_shuffled", "no_residual"),
    ),
    "The data": ("junk_shard", "drift", "repeat_batch_late", "overfit_tiny"),
    "Numbers, weights and what was saved": ("nan_inject", "bitflip", "dead_relu", "optimizer_reset"),
}
"""The faults of the page by heading."""

HEAD = """# Gallery of illnesses

{count} trainings of the lab, each with one fault that was put there on purpose, beside the healthy training of the same model,
data and seed. The picture is that of `ckaudit report HEALTHY ILL -o both.svg`: A, in blue, is the healthy twin, B is ill.
Below it are the verdict of `ckaudit triage` on the ill one, the first cause, and the mend that it names. Where the cause is not
what was done, or nothing was found, the page says so.

`ckaudit lab run NAME --out runs/NAME && ckaudit triage runs/NAME` trains one of them on the CPU and audits it; the names are
those of the headings. `docs/gallery.py` wrote this page with ckaudit {version} from recordings under seed {seed}. [How to read
each picture](reading-pictures.md) says what the curves are.

"""


def page(cache: Path) -> tuple[str, dict[str, str]]:
    """Return the page, and its pictures by file name."""
    blocks, drawn = [], {}
    catalogue = faults()
    for heading, names in SHOWN.items():
        blocks.append(f"## {heading}\n")
        for name in names:
            block, picture = _entry(catalogue[name], cache)
            blocks.append(block)
            drawn[f"{name}.svg"] = picture
    head = HEAD.format(count=len(drawn), version=__version__, seed=SEED)
    return head + "\n".join(blocks), drawn


def _entry(fault: Fault, cache: Path) -> tuple[str, str]:
    """Return the page's entry on one fault, and its picture."""
    twin = next(name for name, family in HEALTHY.items() if family == fault.family)
    with TemporaryDirectory() as place:
        folder = Path(place)
        for name in (twin, fault.name):
            _unpack(cache / f"{name}.{SEED}.tar.zst", folder / name)
        report = msgspec.json.decode(_said(folder, "triage", fault.name, "--format", "json"), type=Report)
        _said(folder, "report", twin, fault.name, "-o", "both.svg")
        picture = (folder / "both.svg").read_text(encoding="utf-8")
    return "\n".join(_told(fault, report)), picture


def _told(fault: Fault, report: Report) -> Iterator[str]:
    name = fault.name
    yield f"### {name}\n"
    yield f"**Done on purpose.** {text(in_numbers(fault.title, fault.dev))}\n"
    alternative = f"Curves of the healthy training and of {name} on shared axes: loss, gradients, attention, updates."
    yield f'<a class="pair" href="gallery/{name}.svg"><img loading="lazy" alt="{alternative}" src="gallery/{name}.svg"></a>\n'
    severity = "no finding" if report.severity in ("", "note", None) else report.severity
    yield f"**Verdict.** {severity}: {text(report.verdict)}\n"
    if not report.diagnoses:
        yield f"**Missed.** No cause is named. What was done is {code(fault.truth)}.\n"
        return
    first = report.diagnoses[0]
    wrong = "" if first.cause == fault.truth else f" It is not what was done: {code(fault.truth)}."
    link = f"[{code(first.cause)}](generated/causes.md#{first.cause})"
    yield f"**First cause.** {text(first.title)} {link}, {standing(first)}.{wrong}\n"
    yield f"**Mend.** {text(first.knob)}\n"
    yield from (f"- {'for' if each.weight > 0 else 'against'}: {text(each.sentence)}" for each in first.evidence[:3])
    yield ""


def _unpack(archived: Path, folder: Path) -> None:
    if not archived.exists():
        raise SystemExit(f"{archived} is missing: ckaudit lab record --cache {archived.parent} trains what is not there")
    folder.mkdir()
    archive.unpack(archived, folder)


def _said(folder: Path, *words: str) -> str:
    """Return the output of a command in a folder, without colours."""
    environ = {key: value for key, value in os.environ.items() if key != "FORCE_COLOR"} | {
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
    }
    called = [sys.executable, "-m", "ckaudit", *words]
    done = subprocess.run(called, cwd=folder, env=environ, capture_output=True, encoding="utf-8", check=False)  # noqa: S603  our own
    if done.returncode not in (0, 1):
        raise SystemExit(f"ckaudit {' '.join(words)}: {done.stderr}")
    return done.stdout


def main(cache: Path) -> None:
    """Write the page and its pictures."""
    written, drawn = page(cache)
    size = len(written) + sum(len(picture) for picture in drawn.values())
    if size > MOST_BYTES:
        raise SystemExit(f"{size:,} bytes are more than {MOST_BYTES:,}: show fewer faults")
    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.glob("*.svg"):
        if old.name not in drawn:
            old.unlink()
    for name, picture in drawn.items():
        (PICTURES / name).write_text(picture, encoding="utf-8")
    PAGE.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default_folder())
