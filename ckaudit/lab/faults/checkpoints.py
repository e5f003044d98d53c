"""Checkpoints of the record that are missing, truncated, written wrongly, or too many."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import FaultStrength, fault

PREFIX = "analysis_checkpoint_step_"
LEVELS = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]


@fault(
    "ckpt_missing",
    group="records",
    truth="checkpoint_missing",
    symptoms=("missing_checkpoint",),
    consequences=("contract_violation",),
    dev=FaultStrength(onset=40, strength=2),
    test=FaultStrength(onset=250, strength=1),
    detectable=20,
)
class CkptMissing(Change):
    """`strength` of the due checkpoints are missing, from that of the onset on.

    The run's own cadence asks for them.
    """

    def finished(self, folder: Path) -> None:
        """Delete them."""
        due = [path for step, path in checkpoints(folder).items() if step >= self.onset]
        for path in due[: int(self.strength)]:
            path.unlink()


@fault(
    "ckpt_truncated",
    group="records",
    truth="checkpoint_cut_off",
    symptoms=("contract_violation",),
    consequences=("missing_checkpoint",),
    dev=FaultStrength(onset=100, strength=0.7),
    test=FaultStrength(onset=250, strength=0.95),
    detectable=0,
)
class CkptTruncated(Change):
    """The checkpoint of the onset is truncated after the share `strength` of its bytes.

    The file cannot be read; the run beside it can.
    """

    def finished(self, folder: Path) -> None:
        """Truncate it."""
        path = checkpoints(folder)[self.onset]
        data = path.read_bytes()
        path.write_bytes(data[: int(self.strength * len(data))])


@fault(
    "recording_every_step",
    group="records",
    truth="recording_too_often",
    harmless=True,
    symptoms=("recording_overhead",),
    consequences=("step_time_jump",),
    dev=FaultStrength(strength=1),
    test=FaultStrength(strength=2),
    detectable=50,
)
class RecordingEveryStep(Change):
    """Checkpoints are `strength` apart in steps, with singular values and hashes of every tensor; the training is stopped early.

    Recording takes four tenths of the time, from the first steps on.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop when there is enough to see."""
        return replace(plan, stop=200)

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Request a checkpoint all the time."""
        from ckaudit.contract.schema.manifest import Cadence

        cadence = [Cadence(until=None, every=int(self.strength))]
        return facts | {"cadence": cadence, "spectral_norms": ["*"], "exact": True, "budget_kb": None}


@fault(
    "percentile_levels",
    group="records",
    truth="writer_wrote_levels",
    symptoms=("contract_violation",),
    consequences=("contradicted_claim", "impossible_value"),
    test=FaultStrength(onset=200),
    detectable=50,
)
class PercentileLevels(Change):
    """In every checkpoint from the onset on, the percentiles of tensors are replaced by their levels.

    Each tensor has the same seven numbers, whatever its minimum and maximum.
    """

    def finished(self, folder: Path) -> None:
        """Replace them."""
        for step, path in checkpoints(folder).items():
            if step >= self.onset:
                _rewrite(path, _replace)


def _replace(part: Any) -> None:
    for name, value in part.items() if isinstance(part, dict) else ():
        if name == "percentiles":
            part[name] = LEVELS
        else:
            _replace(value)


def checkpoints(folder: Path) -> dict[int, Path]:
    """Return the checkpoint files by step, in order; rank files are left out."""
    found = {path.name.removeprefix(PREFIX).partition("."): path for path in sorted(folder.glob(f"{PREFIX}*"))}
    return {int(step): path for (step, _, suffix), path in found.items() if not suffix.startswith("rank")}


def _rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite a checkpoint after `change` has altered its document in place."""
    from ckaudit.contract.io.codec import encode
    from ckaudit.contract.io.files import read_bytes

    document = msgspec.json.decode(read_bytes(path, path.name))
    change(document)
    path.write_bytes(encode(document, path.name[path.name.index(".") :]))
