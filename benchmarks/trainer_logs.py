"""How often triage accuses healthy logs of common fine-tunings: `trainer_state.json` of the Hugging Face Trainer.

    python benchmarks/trainer_logs.py [--draws 10] [--write]

Each kind has the curve and the noise of such trainings: chats, preferences, rewards, adapters of picture models, speech,
classifiers, code. Lengths range from 12 logged lines to 1,000. `--write` puts the table into docs/power.md.
"""

import argparse
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from ckaudit.audit import triage  # noqa: E402
from ckaudit.run.series import Floats  # noqa: E402

PAGE = ROOT / "docs" / "power.md"
MARK, END = "<!-- written by benchmarks/trainer_logs.py -->", "<!-- end of benchmarks/trainer_logs.py -->"
LENGTHS = (12, 25, 50, 100, 300, 1_000)
STEPS = 500  # steps of a training whose log has fewer lines
Random = np.random.Generator
Course = Callable[[int, Random], Floats]


def decay(first: float, last: float, pace: float, *, noise: float = 0.0, share: float = 0.0) -> Course:
    """Return a curve that falls exponentially, with noise of a fixed size and noise of a share of its level."""

    def values(count: int, source: Random) -> Floats:
        clean = last + (first - last) * np.exp(-pace * np.arange(count) / count)
        return clean * np.exp(source.normal(0, share, count)) + source.normal(0, noise, count)

    return values


def preferences(last: float, noise: float) -> Course:
    """Return the curve of a preference loss: from the log of 2, where both answers are equally likely, at first without noise."""

    def values(count: int, source: Random) -> Floats:
        grows = np.minimum(1, 4 * np.arange(count) / count + 0.1)
        return decay(np.log(2), last, 4)(count, source) + source.normal(0, noise, count) * grows

    return values


def smoothed(course: Course, width: int) -> Course:
    """Return the moving average of a curve, as some trainers log it."""
    return lambda count, source: np.convolve(course(count + width - 1, source), np.ones(width) / width, "valid")


def scattered(mean: float, shape: float) -> Course:
    """Return a loss that hardly falls and scatters with the noise level of each batch, as for adapters of a picture model."""
    return lambda count, source: source.gamma(shape, mean / shape, count)


def stairs(first: float, drop: float, noise: float) -> Course:
    """Return a loss over three epochs that drops where an epoch begins, because its rows were seen before."""

    def values(count: int, source: Random) -> Floats:
        passed = 3 * np.arange(count) / count
        return first - drop * np.floor(passed) - 0.05 * (passed % 1) + source.normal(0, noise, count)

    return values


def heavy_tailed(course: Course, size: float) -> Course:
    """Return a curve with noise of Student's distribution of three degrees of freedom."""
    return lambda count, source: course(count, source) + size * source.standard_t(3, count)


KINDS: Mapping[str, tuple[Course, Course | None]] = {
    "chat, SFT": (decay(1.8, 1.25, 25, noise=0.06), decay(1.3, 1.22, 4, noise=0.005)),
    "chat that is nearly known": (decay(1.05, 1.0, 6, noise=0.05), None),
    "continued pretraining": (decay(2.10, 2.05, 3, noise=0.03), decay(2.08, 2.04, 3, noise=0.005)),
    "code": (decay(0.95, 0.62, 5, noise=0.09), decay(0.75, 0.68, 3, noise=0.005)),
    "LoRA at a low rate": (decay(1.62, 1.50, 1.2, noise=0.08), None),
    "three epochs": (stairs(1.5, 0.35, 0.05), decay(1.4, 1.3, 2, noise=0.005)),
    "DPO": (preferences(0.45, 0.04), None),
    "DPO of close answers": (preferences(0.64, 0.03), None),
    "KTO": (decay(0.5, 0.35, 3, noise=0.05), None),
    "ORPO": (decay(3.2, 2.6, 10, noise=0.1), None),
    "reward model": (decay(0.70, 0.48, 3, noise=0.06), decay(0.66, 0.55, 3, noise=0.005)),
    "distillation": (decay(0.35, 0.12, 5, share=0.1), None),
    "picture LoRA": (scattered(0.12, 4), None),
    "picture LoRA, moving average of 10": (smoothed(scattered(0.12, 4), 10), None),
    "speech": (decay(0.9, 0.05, 6, share=0.15), decay(0.9, 0.28, 6, noise=0.002)),
    "sentences, classified": (decay(0.69, 0.12, 4, share=0.3), decay(0.69, 0.30, 4, noise=0.003)),
    "words, tagged": (decay(2.2, 0.05, 8, share=0.25), decay(2.2, 0.2, 8, noise=0.002)),
    "heavy tails": (heavy_tailed(decay(1.4, 1.1, 5), 0.05), None),
}


def write_trainer_state(path: Path, kind: str, count: int, source: Random) -> None:
    """Write the log of one healthy training of a kind."""
    course, held_out = KINDS[kind]
    losses, evals = course(count, source), max(3, count // 10)
    every, apart = max(1, STEPS // count), max(1, count // evals)
    evaluated = held_out(evals, source) if held_out is not None else np.empty(0)
    history: list[dict[str, float]] = []
    for line, loss in enumerate(losses, 1):
        place = {"step": line * every, "epoch": round(3 * line / count, 3)}
        rate = 2e-5 * min(1, 10 * line / count) * (1 - 0.95 * line / count)
        gradient = round(float(np.exp(source.normal(0, 0.2))), 4)
        history.append(place | {"loss": round(max(float(loss), 1e-4), 4), "learning_rate": rate, "grad_norm": gradient})
        if line % apart == 0 and line // apart <= len(evaluated):
            history.append(place | {"eval_loss": round(float(evaluated[line // apart - 1]), 4)})
    steps = count * every
    path.write_text(json.dumps({"log_history": history, "global_step": steps, "max_steps": steps}), encoding="utf-8")


def table(draws: int) -> Iterator[str]:
    """Yield the lines of the table: in how many of a hundred logs of each kind and length a rule finds something, and which."""
    yield "| kind | " + " | ".join(f"{count:,} lines" for count in LENGTHS) + " | by rule |"
    yield "|---" * (len(LENGTHS) + 2) + "|"
    with TemporaryDirectory(prefix="logs-") as folder:
        path = Path(folder) / "trainer_state.json"
        for kind in KINDS:
            cells, codes = [], Counter[str]()
            for count in LENGTHS:
                accused = 0
                for draw in range(draws):
                    write_trainer_state(path, kind, count, np.random.default_rng([draw, count]))
                    told = {f"{each.severity} {each.code}" for each in triage(path).findings if each.severity != "note"}
                    accused += bool(told)
                    codes.update(told)
                cells.append(f"{100 * accused / draws:.0f}")
            yield f"| {kind} | " + " | ".join(cells) + f" | {', '.join(f'{code} {hits}' for code, hits in codes.most_common())} |"


def main() -> None:
    """Print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="put the table into docs/power.md")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    lines = [f"{given.draws} logs of each kind and length; in how many of a hundred anything is told.", "", *table(given.draws)]
    print("\n".join(lines))
    if given.write:
        text = PAGE.read_text(encoding="utf-8")
        before, after = text[: text.index(MARK)], text[text.index(END) :]
        PAGE.write_text("\n".join([before + MARK, "", *lines, "", after]), encoding="utf-8")


if __name__ == "__main__":
    main()
