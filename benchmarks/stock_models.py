"""What triage says about healthy stock models of transformers, as small as their classes allow.

    python benchmarks/stock_models.py [--only NAME,...] [--seed 0] [--cache FOLDER] [--write]

Each is trained for 200 steps by the Trainer with its callback on a task of `TASKS`, at a learning rate of 0.001 and clipped at 1,
as in tutorials, and judged twice: as recorded, and by its `trainer_state.json` alone. What is in the cache is not trained
again. `--write` puts the table into docs/stock-models.md.
"""

import argparse
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

PAGE = ROOT / "docs" / "stock-models.md"
MARK = "<!-- written by benchmarks/stock_models.py -->"
MODELS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TOKENS, LENGTH, FIRST = 64, 32, 4  # vocabulary size; length of a text; tokens below FIRST mark padding, ends and masks
STEPS, ROWS, HELD_OUT = 200, 1200, 96

Row = dict[str, NDArray[Any]]


def texts(rows: int, seed: int, length: int = LENGTH) -> NDArray[np.int64]:
    """Return texts in which each token has four possible successors, shape (rows, length)."""
    language, source = np.random.default_rng(7), np.random.default_rng(seed)
    following = language.integers(FIRST, TOKENS, (TOKENS, 4))
    chances = language.dirichlet(np.full(4, 0.7), TOKENS).cumsum(1)
    found = np.zeros((rows, length), np.int64)
    found[:, 0] = source.integers(FIRST, TOKENS, rows)
    for place in range(1, length):
        before = found[:, place - 1]
        choice = (source.random(rows)[:, None] > chances[before]).sum(1).clip(0, 3)
        found[:, place] = following[before, choice]
    return found


def _labelled(inputs: NDArray[np.int64], labels: NDArray[np.int64]) -> Iterator[Row]:
    for tokens, label in zip(inputs, labels, strict=True):
        yield {"input_ids": tokens, "attention_mask": np.ones(len(tokens), np.int64), "labels": label}


def next_token(rows: int, seed: int) -> Iterator[Row]:
    """Yield texts whose labels are the texts themselves."""
    for tokens in texts(rows, seed):
        yield {"input_ids": tokens, "labels": tokens.copy()}


def masked_token(rows: int, seed: int) -> Iterator[Row]:
    """Yield texts with 15 % of the tokens masked."""
    tokens = texts(rows, seed)
    hidden = np.random.default_rng(seed).random(tokens.shape) < 0.15
    return _labelled(np.where(hidden, FIRST - 1, tokens), np.where(hidden, tokens, -100))


def text_class(rows: int, seed: int) -> Iterator[Row]:
    """Yield texts, and whether most of their tokens are from the first half of the vocabulary."""
    tokens = texts(rows, seed)
    return _labelled(tokens, ((tokens < TOKENS // 2).sum(1) > LENGTH // 2).astype(np.int64))


def token_class(rows: int, seed: int) -> Iterator[Row]:
    """Yield texts, and each token's number modulo five."""
    tokens = texts(rows, seed)
    return _labelled(tokens, tokens % 5)


def span(rows: int, seed: int) -> Iterator[Row]:
    """Yield texts, and the position of the first token that is among the last eight of the vocabulary."""
    for row in _labelled(tokens := texts(rows, seed), (tokens >= TOKENS - 8).argmax(1)):
        place = row.pop("labels")
        yield row | {"start_positions": place, "end_positions": place}


def cipher(rows: int, seed: int) -> Iterator[Row]:
    """Yield short texts, and the same with each token replaced by another."""
    tokens = texts(rows, seed, 12)
    key = np.append(np.arange(FIRST), FIRST + np.random.default_rng(3).permutation(TOKENS - FIRST))
    return _labelled(tokens, key[tokens])


def gratings(rows: int, seed: int, size: int = 32) -> Iterator[Row]:
    """Yield noisy pictures of waves in four directions."""
    source = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size] / size
    for _ in range(rows):
        kind = int(source.integers(4))
        wave = np.sin(8 * np.pi * (np.cos(kind * np.pi / 4) * x + np.sin(kind * np.pi / 4) * y) + 2 * np.pi * source.random())
        noise = 0.5 * source.normal(size=(3, size, size))
        yield {"pixel_values": (wave + noise).astype(np.float32), "labels": np.array(kind)}


def pictures(rows: int, seed: int) -> Iterator[Row]:
    """Yield the pictures of `gratings` without labels."""
    for row in gratings(rows, seed):
        yield {"pixel_values": row["pixel_values"]}


def segments(rows: int, seed: int, size: int = 32) -> Iterator[Row]:
    """Yield noise with a bright square of one of two colours, and which pixels it covers."""
    source = np.random.default_rng(seed)
    for _ in range(rows):
        (top, left), colour = source.integers(2, size - 14, 2), 1 + int(source.integers(2))
        labels = np.zeros((size, size), np.int64)
        labels[top : top + 12, left : left + 12] = colour
        pixels = 0.3 * source.normal(size=(3, size, size))
        pixels[colour] += 1.5 * (labels == colour)
        yield {"pixel_values": pixels.astype(np.float32), "labels": labels}


def moving_squares(rows: int, seed: int) -> Iterator[Row]:
    """Yield four frames in which a square moves in one of four directions."""
    source = np.random.default_rng(seed)
    for _ in range(rows):
        kind, place = int(source.integers(4)), source.integers(4, 8, 2)
        move = np.array([(2, 0), (-2, 0), (0, 2), (0, -2)])[kind]
        frames = 0.3 * source.normal(size=(4, 3, 16, 16))
        for frame in range(4):
            top, left = (place + frame * move) % 16
            frames[frame, :, top : top + 4, left : left + 4] += 1.5
        yield {"pixel_values": frames.astype(np.float32), "labels": np.array(kind)}


def tones(rows: int, seed: int, length: int = 1600) -> Iterator[Row]:
    """Yield noisy tones of four pitches."""
    source, time = np.random.default_rng(seed), np.arange(length) / length
    for _ in range(rows):
        kind = int(source.integers(4))
        sound = np.sin(80 * np.pi * (kind + 1) * time + 6 * source.random()) + 0.3 * source.normal(size=length)
        yield {"input_values": sound.astype(np.float32), "labels": np.array(kind)}


def tone_sequences(rows: int, seed: int) -> Iterator[Row]:
    """Yield four tones in a row, and their pitches."""
    source, time = np.random.default_rng(seed), np.arange(400) / 400
    for _ in range(rows):
        pitches = source.integers(1, 5, 4)
        sound = np.concatenate([np.sin(24 * np.pi * pitch * time) for pitch in pitches]) + 0.2 * source.normal(size=1600)
        yield {"input_values": sound.astype(np.float32), "labels": pitches}


def spectrograms(rows: int, seed: int) -> Iterator[Row]:
    """Yield spectrograms with one of four bands."""
    source = np.random.default_rng(seed)
    for _ in range(rows):
        kind, values = int(source.integers(4)), 0.5 * source.normal(size=(64, 32))
        values[:, 6 * kind + 2 : 6 * kind + 5] += 1.5
        yield {"input_values": values.astype(np.float32), "labels": np.array(kind)}


def _waves(rows: int, seed: int, length: int) -> Iterator[NDArray[np.float32]]:
    source, time = np.random.default_rng(seed), np.arange(length)
    for _ in range(rows):
        wave = np.sin(2 * np.pi * time / 12 + 6 * source.random()) * source.uniform(0.5, 2) + 0.1 * source.normal(size=length)
        yield (wave + source.normal()).astype(np.float32)


def waves(rows: int, seed: int) -> Iterator[Row]:
    """Yield noisy waves of period twelve, and their continuation."""
    for wave in _waves(rows, seed, 60):
        yield {"past_values": wave[:48, None], "future_values": wave[48:, None]}


def dated_waves(rows: int, seed: int) -> Iterator[Row]:
    """Yield the waves of `waves` with the time of each value, and a mask that says all were observed."""
    dates, seen = (np.arange(52, dtype=np.float32) / 100)[:, None], np.ones(52, np.float32)
    for wave in _waves(rows, seed, 52):
        parts = {"values": wave, "time_features": dates, "observed_mask": seen}
        yield {
            f"{when}_{name}": part[rows]
            for when, rows in (("past", slice(40)), ("future", slice(40, 52)))
            for name, part in parts.items()
        }


TASKS: dict[str, Callable[[int, int], Iterator[Row]]] = {
    task.__name__: task
    for task in (
        *(next_token, masked_token, text_class, token_class, span, cipher),
        *(gratings, pictures, segments, moving_squares, tones, tone_sequences, spectrograms, waves, dated_waves),
    )
}


def record(name: str, seed: int, folder: Path) -> None:
    """Train a model through the Trainer with its callback, in this process."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    import torch
    import transformers

    from ckaudit.recorder.huggingface import RecorderCallback

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    asked = MODELS[name]
    model = getattr(transformers, asked["model"])(getattr(transformers, asked["config"])(**asked["arguments"]))
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"),
        max_steps=STEPS,
        per_device_train_batch_size=16,
        learning_rate=1e-3,
        warmup_steps=STEPS // 10,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=STEPS // 4,
        save_steps=STEPS,
        save_only_model=True,
        report_to=[],
        seed=seed,
        use_cpu=True,
        disable_tqdm=True,
    )
    task = TASKS[asked["task"]]
    rows, held_out = ([*map(_tensors, task(count, seed + start))] for count, start in ((ROWS, 100), (HELD_OUT, 900)))
    callback = RecorderCallback(folder / "run")
    transformers.Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=held_out, callbacks=[callback]).train()


def _tensors(row: Row) -> dict[str, Any]:
    import torch

    return {name: torch.as_tensor(values) for name, values in row.items()}


def cells(folder: Path) -> tuple[list[str], list[str]]:
    """Return the findings of sev2 and worse: as recorded, and by the trainer's log alone."""
    from ckaudit.audit import triage

    log = max(folder.glob("trainer/checkpoint-*/trainer_state.json"))
    reports = [triage(folder / "run"), triage(log)]
    of_recorded, of_log = (
        sorted({f"{finding.severity} {finding.code}" for finding in report.findings if finding.severity != "note"})
        for report in reports
    )
    return of_recorded, of_log


def table(names: Sequence[str], seed: int, cache: Path) -> str:
    """Return the table: how many models of each task are without findings, and each model that has one."""
    found = {name: cells(cache / f"{name}.{seed}") for name in names}
    clean = sum(not recorded for recorded, _ in found.values()), sum(not logged for _, logged in found.values())
    lines = [
        f"Of {len(names)} models {clean[0]} have no finding of sev2 or worse as recorded, {clean[1]} none in the log alone.",
        "",
    ]
    lines += ["| model | task | as recorded | log alone |", "|---|---|---|---|"]
    for name, (recorded, logged) in found.items():
        if recorded or logged:
            lines.append(f"| {name} | {MODELS[name]['task']} | {', '.join(recorded) or '-'} | {', '.join(logged) or '-'} |")
    return "\n".join(lines)


def main() -> None:
    """Train what is missing, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "ckaudit" / "stock_models")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    names = [name for name in MODELS if not given.only or name in given.only.split(",")]
    for name in names:
        folder = given.cache / f"{name}.{given.seed}"
        if not list(folder.glob("trainer/checkpoint-*/trainer_state.json")):
            record(name, given.seed, folder)
            print(name, file=sys.stderr, flush=True)
    text = table(names, given.seed, given.cache)
    if given.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page[: page.index(MARK) + len(MARK)] + "\n\n" + text + "\n", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
