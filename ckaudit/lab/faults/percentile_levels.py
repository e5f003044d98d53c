"""Levels where percentiles should be."""

from pathlib import Path
from typing import Any

from ckaudit.lab.change import Change
from ckaudit.lab.run_files import checkpoints, rewrite
from ckaudit.lab.story import Amount, fault

LEVELS = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]


@fault(
    group="records",
    truth="writer_wrote_levels",
    symptoms=("contract_violation",),
    consequences=("contradicted_claim", "impossible_value"),
    test=Amount(onset=200),
    detectable=50,
)
class PercentileLevels(Change):
    """In every checkpoint from the onset on, all percentiles of tensors are the levels at which they should be taken.

    Each tensor has the same seven numbers, whatever its least and largest value.
    """

    def finished(self, folder: Path) -> None:
        """Replace them."""
        for step, path in checkpoints(folder).items():
            if step >= self.onset:
                rewrite(path, _replace)


def _replace(part: Any) -> None:
    for name, value in part.items() if isinstance(part, dict) else ():
        if name == "percentiles":
            part[name] = LEVELS
        else:
            _replace(value)
