"""What most likely makes two runs of one seed differ, from what is recorded and where they first do; each with what to set."""

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from ckaudit.contract.schema.diff import Departure, Unlike
from ckaudit.run.run import Run

RECORDED: tuple[tuple[str, str], ...] = (
    ("seed", "seed Python, NumPy, torch and every loader worker with the same number"),
    ("data_order", "seed the sampler by epoch or step, and save its position with the weights"),
    ("tokens_per_update", "use the same batch size, accumulation and packing"),
    ("config.", "use the same settings"),
    ("planned_learning_rate", "use the same schedule"),
    ("vocabulary", "use the same tokenizer"),
    ("tokenizer_hash", "use the same tokenizer"),
    ("data_manifest", "use the same data"),
    ("tensors", "build the same model"),
    ("loss_scale", "scale the loss in both or in none"),
    ("commit", "run the same commit"),
    ("lock_hash", "install from one lock file"),
    ("environment", "use the same versions of framework, driver and libraries"),
    ("world_size", "use as many ranks: their number sets the order in which gradients are summed"),
)
"""What is recorded as not alike, likeliest first; a name ends with a dot where all below it count."""

_GPU = "torch.use_deterministic_algorithms(True) and CUBLAS_WORKSPACE_CONFIG=:4096:8"


def sources(alike: Sequence[Unlike], first: Sequence[Departure], left: Run, right: Run) -> list[str]:
    """Return likely reasons, likeliest first, a sentence each: what the record shows, then what the place suggests.

    Args:
        alike: What is not alike in both runs.
        first: What differs at the first step that does, in the order in which a step computes it.
        left: The reference.
        right: The subject.
    """
    found = [f"{unlike.message}: {advice}" for name, advice in RECORDED for unlike in alike if _is_meant(unlike, name)]
    return [*dict.fromkeys((*found, *_resumes(first, left, right), *_of_place(first, left, right)))]


def _is_meant(unlike: Unlike, name: str) -> bool:
    """Tell whether a difference is the one named, or below it, and no one-sided remark."""
    is_below = unlike.name.startswith(name if name.endswith(".") else f"{name}.")
    return (unlike.name == name or is_below) and (bool(unlike.invalidates) or unlike.kind == "config")


def _resumes(first: Sequence[Departure], left: Run, right: Run) -> Iterator[str]:
    for which, run in (("first", left), ("second", right)):
        sessions = run.manifest.sessions if run.manifest else UNSET
        for session in (sessions or [])[1:]:
            start = session.resumed_from
            if start is not UNSET and first[0].step > start:
                what = f"the {which} was taken up again after step {start}, before they part at step {first[0].step}"
                yield f"{what}: restore the optimizer, the loss scale, the data position and every random state"


def _of_place(first: Sequence[Departure], left: Run, right: Run) -> Iterator[str]:
    """Yield what the stage of the step and the first tensor suggest."""
    stage, tensor = first[0].statistic.partition(".")[0], next((departure.where for departure in first if departure.where), None)
    if stage in ("batch_hash", "batch_id", "data"):
        yield "the batches differ before anything is computed: seed the sampler and its workers, and sort the files that are read"
        return
    if stage == "learning_rate":
        yield "the learning rate differs before anything else does: compare the schedules and what a resume restores of them"
        return
    if first[0].step == 0:
        yield "the weights differ before the first update: seed before the model is built, and build its parts in one order"
        return
    yield from _dropout(left, right)
    if not _on_processor(left, right):
        yield from _of_kernels(stage, left.tensors.kind(tensor) if tensor else "", tensor or "")
    if _ranks(left) > 1 or _ranks(right) > 1:
        yield "ranks sum gradients in an order that may change: fix the algorithm (NCCL_ALGO=Ring) and the size of its buckets"
    if stage in ("weights", "weight_deltas", "optimizer"):
        yield "gradients agree and weights do not: compare the optimizer's settings, its state and its fused or foreach variant"
    if _on_processor(left, right):
        yield "sums on a processor depend on the number of threads: set OMP_NUM_THREADS and torch.set_num_threads to the same"


def _of_kernels(stage: str, kind: str, tensor: str) -> Iterator[str]:
    if kind == "embedding":
        yield f"the gradient of the embedding {tensor} is summed by atomics: {_GPU}"
    if stage == "attention" or kind == "attention":
        yield (
            "the backward pass of fused attention adds in no fixed order: deterministic=True in FlashAttention, or "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
        )
    if kind == "router" or stage == "moe":
        yield f"routing scatters tokens by index_add and breaks ties by chance: {_GPU}"
    if kind == "conv":
        yield "cuDNN chooses its kernels by timing them: torch.backends.cudnn.benchmark = False and .deterministic = True"
    yield f"index_add, scatter_add and split sums of matrix products add in no fixed order: {_GPU}"
    yield "TF32 and other precisions of products may be set differently: torch.backends.cuda.matmul.allow_tf32 in both"


def _dropout(left: Run, right: Run) -> Iterator[str]:
    rates = [run.manifest.dropout for run in (left, right) if run.manifest and run.manifest.dropout is not UNSET]
    if any(isinstance(rate, float) and rate > 0 for rate in rates):
        yield "dropout draws from the random state of its device: seed it in both, and let nothing else draw from it between"


def _ranks(run: Run) -> int:
    size = run.manifest.world_size if run.manifest else UNSET
    sessions = (run.manifest.sessions if run.manifest else UNSET) or []
    sizes = [session.world_size for session in sessions if session.world_size is not UNSET]
    return max([*sizes, 1 if size is UNSET else size])


def _on_processor(left: Run, right: Run) -> bool:
    """Tell whether all tensors are known to live in the memory of the processor."""
    devices = [fact.device for run in (left, right) for fact in run.tensors.facts.values()]
    return bool(devices) and all(device == "cpu" for device in devices)
