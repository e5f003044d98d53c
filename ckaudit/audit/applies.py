"""What a run has and what it has not: attention, experts, a loss scaler, other ranks, an accelerator."""

from collections.abc import Callable

from msgspec import UNSET

from ckaudit.metrics.catalogue import Condition
from ckaudit.run.run import Run

OUR_RECORDER = "ckaudit recorder"


def why_not(run: Run, condition: Condition) -> str:
    """Return why a number makes no sense for a run, or an empty string where it does or nobody can tell."""
    return _ANSWERS[condition](run) if condition else ""


def _attention(run: Run) -> str:
    kinds = _kinds(run)
    return "no tensor of the model is one of attention" if kinds and "attention" not in kinds else ""


def _experts(run: Run) -> str:
    everything = {**run.sections, **run.scalars}
    recorded = any(bool(series) for name, series in everything.items() if name.startswith(("moe.", "moe_")))
    return "" if recorded or "router" in _kinds(run) else "nothing says that the model has experts"


def _loss_scaler(run: Run) -> str:
    """Our recorder writes the scale at every step, so its absence says something; that of others does not."""
    recorded = run.scalar("loss_scale") or run.value("optimizer.loss_scale")
    source = run.manifest.source if run.manifest else UNSET
    ours = source is not UNSET and source.startswith(OUR_RECORDER)
    return "the recorder was given no loss scaler" if ours and not recorded else ""


def _ranks(run: Run) -> str:
    return "one process trains alone" if run.manifest and run.manifest.world_size == 1 else ""


def _device(run: Run) -> str:
    devices = {fact.device for fact in run.tensors.facts.values()}
    return "the model is on the CPU" if devices == {"cpu"} else ""


def _kinds(run: Run) -> set[str]:
    """Return the kinds of all tensors that the run names; empty: it names none."""
    return {run.tensors.kind(name) for name in run.tensors.facts}


_ANSWERS: dict[Condition, Callable[[Run], str]] = {
    "attention": _attention,
    "experts": _experts,
    "loss_scaler": _loss_scaler,
    "ranks": _ranks,
    "device": _device,
}
