"""Checkpoints that are gone."""

from pathlib import Path

from ckaudit.lab.change import Change
from ckaudit.lab.run_files import checkpoints
from ckaudit.lab.story import Amount, fault


@fault(
    group="records",
    truth="checkpoint_missing",
    symptoms=("missing_checkpoint",),
    consequences=("contract_violation",),
    dev=Amount(onset=40, strength=2),
    test=Amount(onset=250, strength=1),
    detectable=20,
)
class CkptMissing(Change):
    """Of the checkpoints due, `strength` are gone, the first of them that of the onset.

    The run's own cadence asks for them.
    """

    def finished(self, folder: Path) -> None:
        """Delete them."""
        due = [path for step, path in checkpoints(folder).items() if step >= self.onset]
        for path in due[: int(self.strength)]:
            path.unlink()
