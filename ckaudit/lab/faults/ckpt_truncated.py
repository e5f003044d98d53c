"""A checkpoint file that ends too early."""

from pathlib import Path

from ckaudit.lab.change import Change
from ckaudit.lab.run_files import checkpoints
from ckaudit.lab.story import Amount, fault


@fault(
    group="records",
    truth="checkpoint_cut_off",
    symptoms=("contract_violation",),
    consequences=("missing_checkpoint",),
    dev=Amount(onset=100, strength=0.7),
    test=Amount(onset=250, strength=0.95),
    detectable=0,
)
class CkptTruncated(Change):
    """The checkpoint of the onset is cut off behind the share `strength` of its bytes.

    The file cannot be read; the run beside it can.
    """

    def finished(self, folder: Path) -> None:
        """Cut it."""
        path = checkpoints(folder)[self.onset]
        data = path.read_bytes()
        path.write_bytes(data[: int(self.strength * len(data))])
