"""Public logs of fixtures/real thinned to a few points: the first, every k-th, or drawn at random."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ckaudit.audit.load_run import open_run
from ckaudit.run.run import Run
from ckaudit.run.series import Series

REAL = Path(__file__).parents[1] / "fixtures" / "real"
COUNTS = (5, 10, 20, 49, 100, 500)
WAYS = 20
NOT_HEALTHY = {
    "hf_trainer/whisper_small_hi_overfit",
    "hf_trainer/whisper_flemish_15k",
    "algoperf/ogbg_prodigy_overfit_s2",
    "algoperf/criteo_genadam_inf_step73",
    "algoperf/conformer_nadamw_seq_restart_80k_160k",
    "algoperf/wmt_caspr_spiky",
    "algoperf/resnet_sfprodigy_val_diverges",
    "algoperf/resnet_sfadamw_no_train_series",
    "pythia/160m-8",
    "bigscience",
}
"""Logs whose authors report an illness, and logs of a few lines from a chronicle of divergences."""

OVERFIT = (
    "hf_trainer/whisper_small_hi_overfit/trainer_state.json",
    "hf_trainer/whisper_flemish_15k/trainer_state.json",
    "algoperf/ogbg_prodigy_overfit_s2/measurements.csv",
    "algoperf/resnet_sfprodigy_val_diverges/measurements.csv",
    "algoperf/resnet_sfadamw_no_train_series/measurements.csv",
)
SPIKY = ("algoperf/conformer_nadamw_seq_restart_80k_160k/measurements.csv", "algoperf/wmt_caspr_spiky/measurements.csv")
DIVERGED = "bigscience/tr8-104B-wide__chronicles__it6900-6940.log"
SUFFIXES = (".csv", "trainer_state.json", ".log", ".txt", ".jsonl", "_sm_h100.json", "_sm_gb200.json")


def files() -> list[str]:
    """Return the logs of fixtures/real that record a loss."""
    paths = [str(path.relative_to(REAL)) for path in sorted(REAL.rglob("*")) if path.is_file()]
    return [path for path in paths if path.endswith(SUFFIXES) and "two_runs" not in path and "/" in path]


def thin(run: Run, count: int, way: int) -> Run:
    """Return a run with at most `count` points of each scalar: the first, every k-th with an offset, or some at random."""
    rng = np.random.default_rng([count, way])
    loss = _main(run)
    last = int(loss.steps[min(count, len(loss.steps)) - 1])

    def part(series: Series) -> Series:
        total = len(series.steps)
        if way == 0:
            return series.until(last)
        if total <= count:
            return series
        rows = np.sort(rng.choice(total, count, replace=False))
        if way <= WAYS // 2:
            every = total // count
            rows = (way * every // (WAYS // 2 + 1)) + every * np.arange(count)
        return Series(series.name, series.unit, series.steps[rows], series.labels, series.values[rows], series.recorded[rows])

    kept = ("train_loss_raw", "val_loss", "learning_rate")
    return Run(
        name=run.name, manifest=run.manifest, scalars={name: part(each) for name, each in run.scalars.items() if name in kept}
    )


def healthy(ways: int) -> Iterator[tuple[str, str, list[Run]]]:
    """Yield each healthy log: its name, the numbers of points, and the thinned runs."""
    for path in files():
        if any(path.startswith(each) for each in NOT_HEALTHY):
            continue
        run = open_run(REAL / path, reads=())
        if not run.scalars.keys() & {"train_loss_raw", "val_loss"}:
            continue
        total = len((_main(run)).steps)
        counts = [count for count in COUNTS if count < total]
        yield path, ", ".join(map(str, counts)), [thin(run, count, way) for count in counts for way in range(ways)]


def ill(ways: int) -> Iterator[tuple[str, str, set[str], list[Run]]]:
    """Yield each ill log: its name, the numbers of points, the rules on its illness, and the thinned runs that still show it."""
    for paths, codes, shows in ((OVERFIT, {"LOSS002"}, _still_rises), (SPIKY, {"LOSS001", "LOSS004"}, _still_jumps)):
        for path in paths:
            run = open_run(REAL / path, reads=())
            runs = [thin(run, count, way) for count in COUNTS for way in range(1, ways)]
            yield path, ", ".join(map(str, COUNTS)), codes, [run for run in runs if shows(run)]
    yield DIVERGED, "5", {"LOSS004"}, [open_run(REAL / DIVERGED, reads=())]


def _still_rises(run: Run) -> bool:
    """Tell whether the last three evaluations (two if there are fewer than ten) are 15 % above the lowest."""
    val = run.scalars["val_loss"].values[:, 0]
    val = val[np.isfinite(val)]
    return len(val) >= 5 and bool(val[-2 if len(val) < 10 else -3 :].min() > 1.15 * val.min())


def _still_jumps(run: Run) -> bool:
    """Tell whether two points are at twice the level of the three before them."""
    loss = run.scalars["train_loss_raw"].values[:, 0]
    level = np.array([np.median(loss[row - 3 : row]) for row in range(3, len(loss))])
    return int((loss[3:] > 2 * level).sum()) >= 2


def _main(run: Run) -> Series:
    """Return the training loss, or the validation loss if there is no other."""
    return run.scalars["train_loss_raw" if "train_loss_raw" in run.scalars else "val_loss"]
