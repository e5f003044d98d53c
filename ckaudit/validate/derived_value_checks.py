"""What the scalar log says twice: numbers that can be recomputed from others in it, against these."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ckaudit.contract.io.folder import RunFolder
from ckaudit.contract.schema.report import Finding
from ckaudit.validate.catalogue import CONTRADICTED_CLAIM
from ckaudit.validate.file_facts import RunFacts

DERIVED = {
    "grad_clip_rate": ("clip_coefficient", "grad_global_norm"),
    "grad_noise_scale": ("grad_noise_trace", "grad_noise_signal"),
    "lr_phase": (),
    "mfu": ("tokens_seen",),
    "nan_inf_events": ("train_loss_raw", "val_loss", "grad_global_norm"),
    "overflow_rate": ("skipped_updates", "loss_scale"),
    "step_time": (),
    "steps_seen": ("skipped_updates",),
    "tokens_per_sec": ("tokens_seen",),
    "tokens_per_update": ("tokens_seen",),
    "train_loss_ema": ("train_loss_raw",),
    "train_ppl": ("train_loss_raw", "train_loss_ema"),
    "train_val_gap": ("val_loss",),
    "val_ppl": ("val_loss",),
}
"""Names that the rest of a log can judge, and the names of which one is needed to. They stand here, where no numpy is
loaded, so that a run without them is not read twice."""


def says_derived(run: RunFacts) -> bool:
    """Tell whether a log of the run holds a number that can be recomputed."""
    names = {name.partition("/")[0] for log in run.logs for name in log.names}
    return any(name in names and (not inputs or names.intersection(inputs)) for name, inputs in DERIVED.items())


def contradicted_claims(run: RunFacts, units: Mapping[str, str] = MappingProxyType({})) -> Iterator[Finding]:
    """Yield the logged numbers that lie outside what the log's own raw numbers allow; checkpoints are not read again.

    Args:
        run: What was read of the run.
        units: The unit of a share by name, where the user said it.
    """
    if not says_derived(run):
        return
    from ckaudit.metrics.contradictions import claimed_value, nearest_allowed_value
    from ckaudit.rules.files.contradicted_claim import contradicted_claim
    from ckaudit.rules.rule import Hit
    from ckaudit.run.read import read_run
    from ckaudit.run.units import in_catalogue_units

    folder = RunFolder(run.folder.root, scalars=run.folder.scalars, manifest=run.folder.manifest)
    log = in_catalogue_units(read_run(folder, reads=()), units)
    shown = run.logs[0].shown
    for hit in contradicted_claim.function(claimed_value(log), nearest_allowed_value(log)):
        if isinstance(hit, Hit):
            message = hit.message.format(where=hit.where, value=hit.value, limit=hit.limit)
            yield CONTRADICTED_CLAIM.at(
                shown,
                message,
                where=hit.where,
                first_step=hit.first,
                last_step=hit.last,
                worst_step=hit.worst,
                value=hit.value,
                limit=hit.limit,
                points=hit.points,
            )
