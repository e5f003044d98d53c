"""Phase 3: what has it learnt? Heads, the weights that moved, hidden units and the embedding."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ckaudit.causes.cause import Findings
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Word
from ckaudit.metrics.activations import activation_mean_abs, activation_rms, dead_unit_fraction
from ckaudit.metrics.attention import uniform_head_fraction
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.heads import head_kind_share, head_similarity
from ckaudit.metrics.probes import probe_shift_loss
from ckaudit.metrics.weights import relative_movement, weight_rms
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.questions.question import (
    FINDINGS,
    SeriesAnswer,
    lenient_before,
    not_applicable,
    not_recorded,
    question,
    word_if_high,
    word_if_low,
    worst_of,
)
from ckaudit.questions.values import is_matrix, largest, last_row, points
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.attention.redundant_heads import redundant_heads
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.run.medians import median
from ckaudit.run.run_facts import is_adaptive
from ckaudit.run.series import Series
from ckaudit.run.tensors import TensorTable, table_of
from ckaudit.wording import first_names

CORE = ("attention", "mlp", "router")

COMPARED_KINDS = ("embedding", "norm")

NORMAL = math.sqrt(2 / math.pi)  # mean magnitude over root mean square of a normal distribution

WATCHED_HEAD_SHARE, BAD_HEAD_SHARE = 0.5, 0.9
"""Shares of the heads above which a trait is to be watched, and above which it is bad (starting values)."""

CUT_OFF = (
    "dead_parameter",
    "zero_gradients",
    "starved_branch",
    "barely_moving",
    "layer_not_contributing",
    "missing_in_optimizer",
    "frozen_parameter",
)
"""Rules whose findings name tensors ("blocks.1.attn.q.weight"), or the branch of a block ("blocks.1 attention")."""


@question(
    "D3.1",
    needs=[head_kind_share],
    wants=[head_similarity, uniform_head_fraction, FACTS, FINDINGS],
    rules=("entropy_collapse", "uniform_heads", "redundant_heads", "logit_growth", "mask_leak"),
    weighs=CUT_OFF,
)
def heads_do(
    shares: Series,
    similarity: Series | None,
    uniform: Series | None,
    facts: Manifest | None,
    findings: Findings,
    *,
    same: float = 0.99,
    watch: float = WATCHED_HEAD_SHARE,
    bad: float = BAD_HEAD_SHARE,
    early: int = 500,
) -> SeriesAnswer:
    """What do the heads do?

    ## Looks at
    The kind of every head, the share of uniform ones, and how alike the maps of a layer are.
    ## Good
    The heads have taken up different work (playbook D3.1).
    ## Watch
    More than `watch` of the heads are uniform, or have a twin in their layer: a cosine above `same`. Or findings on its gradients
    and updates say that the attention of a block is cut off: what its heads look at is of no use.
    ## Bad
    More than `bad` of the heads are uniform, or have a twin, from step `early` on: all look everywhere alike, or all do the same,
    as they do in every model at first. The four limits are starting values.
    """
    step, row = last_row(shares)
    even = points(uniform).last[1] if uniform is not None else row.get("uniform", 0.0)
    kinds = ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in row.items() if share > 0)
    text, numbers = f"at step {step}: {kinds}; {even:.0%} of the heads are uniform", {**row, "uniform_heads": even}
    twins = 0.0
    if similarity is not None:
        _, nearest = last_row(similarity)
        twins = numbers["twins"] = float(np.mean([value > same for value in nearest.values()]))
        text += f"; {twins:.0%} have a twin (cosine above {same:.2g})"
    word = lenient_before(word_if_high(max(even, twins), watch=watch, bad=bad), step, early)
    if cut := cut_off(findings, table_of(facts), "attention"):
        word, text = worst_of(word, "watch"), f"{text}; {cut}"
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


@question("D3.2", needs=[head_similarity], rules=("redundant_heads",))
def heads_redundant(
    similarity: Series,
    *,
    alike: float = redundant_heads.thresholds["note_similarity"],
    watch: float = 0.25,
    bad: float = redundant_heads.thresholds["max_head_share"],
    early: int = 500,
) -> SeriesAnswer:
    """Which heads are redundant?

    ## Looks at
    The cosine of each head's map to the most similar other head of its layer.
    ## Good
    At most `watch` of the heads have a cosine above `alike` (playbook D3.2).
    ## Watch
    More of the heads do.
    ## Bad
    More than `bad` of the heads do, from step `early` on. `alike` and `bad` are those of redundant_heads, `watch` is a starting
    value for the playbook's "many", and `early` is that of D3.1.
    """
    step, row = last_row(similarity)
    same = sorted((name for name, value in row.items() if value > alike), key=lambda name: -row[name])
    name, value = largest(row)
    share = len(same) / len(row)
    text = f"at step {step} {len(same)} of {len(row)} heads have a cosine above {alike:.2g} to another of their layer"
    text += f": {first_names(same, 3)}" if same else f"; the largest is {value:.3g}, of {name}"
    numbers = {"heads": float(len(row)), "alike": float(len(same)), "share": share, "largest": value}
    word = lenient_before(word_if_high(share, watch=watch, bad=bad), step, early)
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


@question("D3.3", wants=[probe_shift_loss, head_kind_share], rules=("mask_leak",))
def content_or_position(
    shift: Series | None, shares: Series | None, *, watch: float = 0.1, bad: float = 1.5, diagonal: float = BAD_HEAD_SHARE
) -> SeriesAnswer:
    """Does attention follow content, or position only?

    ## Looks at
    What the same tokens cost more at other positions (probes with a twin named like them and ".shifted"), and the kinds of the
    heads.
    ## Good
    Moving the tokens costs at most `watch` nats a token: attention goes by content as well (playbook D3.3).
    ## Watch
    Moving them costs more.
    ## Bad
    Moving them costs more than `bad` nats, or more than `diagonal` of the heads follow a position, the diagonal or the first
    token. The three limits are starting values; a healthy run with learnt positions costs 1.2 nats.
    """
    numbers: dict[str, float] = {}
    texts: list[str] = []
    if shares is not None:
        step, row = last_row(shares)
        numbers["by_position"] = sum(row.get(kind, 0.0) for kind in ("positional", "diagonal", "first_token"))
        texts.append(f"{numbers['by_position']:.0%} of the heads go by position at step {step}")
    by_position = numbers.get("by_position", 0.0) > diagonal
    if shift is None:
        if by_position:
            return SeriesAnswer(word="bad", sentence=texts[0], numbers=numbers)
        return not_recorded("; ".join(["no probe was scored at other positions", *texts]), "probe_shift_loss")
    step, costs = last_row(shift)
    name, cost = largest(costs)
    numbers["shift_loss"] = cost
    texts.insert(0, f"at step {step} {name} costs {cost:+.3g} nats a token at other positions")
    word = "bad" if by_position else word_if_high(cost, watch=watch, bad=bad)
    return SeriesAnswer(word=word, sentence="; ".join(texts), numbers=numbers)


@question(
    "D3.4",
    needs=[relative_movement],
    wants=[FACTS, optimizer_adapts],
    rules=("weights_grow", "weights_shrink", "decay_outweighs_learning", "weights_jump"),
)
def weights_changed_most(
    moved: Series,
    facts: Manifest | None,
    adapts: Series | None,
    *,
    top: float = 1 / 3,
    watch: float = 0.5,
    min_relative_movement: float = 0.01,
    hardly: float = 0.02,
) -> SeriesAnswer:
    """Which weights changed most?

    ## Looks at
    The `top` of the tensors by how far they have come relative to where they started, at the last checkpoint.
    ## Good
    `watch` of these or more are projections of attention and MLP (playbook D3.4).
    ## Watch
    Fewer of these are such projections.
    ## Bad
    Only embeddings and norms moved:

    - No projection came `min_relative_movement` as far as an embedding or a norm did, nor `hardly` of where it started.
    - A head that starts anew moves far in every fine-tuning, and is not compared.
    - Nothing is bad under plain SGD: embeddings move further than all else there, for nothing evens their gradients out.
    - The other limits are starting values.
    """
    table = table_of(facts)
    step, row = last_row(moved)
    ranked = sorted(row, key=lambda name: -row[name])
    first = ranked[: max(1, round(len(ranked) * top))]
    if not any(table.kind(name) in CORE for name in ranked):
        return not_applicable("no tensor is known to be one of attention or MLP")
    core = sum(table.kind(name) in CORE for name in first) / len(first)
    changes = ", ".join(f"{name} by {row[name]:.3g}" for name in first[:3])
    text = f"by step {step} furthest from where they started: {changes}; {core:.0%} of the first {len(first)} are core weights"
    furthest = max(row[name] for name in ranked if table.kind(name) in CORE)
    beside = max((row[name] for name in ranked if table.kind(name) in COMPARED_KINDS), default=0.0)
    is_even = adapts is None or is_adaptive(adapts)
    stands = is_even and beside > 0 and furthest <= min_relative_movement * beside and furthest < hardly
    numbers = {"core_share": core, "furthest": row[ranked[0]], "furthest_core": furthest}
    return SeriesAnswer(word="bad" if stands else word_if_low(core, watch=watch, bad=0), sentence=text, numbers=numbers)


@question(
    "D3.5",
    needs=[activation_mean_abs, activation_rms],
    wants=[dead_unit_fraction, FACTS, FINDINGS],
    rules=("dead_units", "saturated_units", "weights_alike"),
    weighs=CUT_OFF,
)
def neurons_specialize(
    size: Series,
    rms: Series,
    dead: Series | None,
    facts: Manifest | None,
    findings: Findings,
    *,
    min_change: float = 0.02,
    silent: float = dead_units.thresholds["max_dead_share"],
    noise: float = 0.05,
) -> SeriesAnswer:
    r"""Do neurons of the MLP specialize?

    ## Looks at
    The shape of the hidden activations, as mean magnitude over root mean square (Geary 1936): 0.80 for a normal distribution,
    less the more is done by few units. The first and the last checkpoint are compared, module by module.
    ## Good
    The shape of some module changed by more than `min_change` (playbook D3.5 asks for a shape that evolves).
    ## Watch
    No shape changed, but one was not that of noise before, as in a model that was trained already. Or more than `silent` of a
    module's units are silent (the limit of dead_units). Or the MLP of a block is cut off, as in D3.1.
    ## Bad
    No shape changed, and all lie within `noise` of a normal distribution's. `min_change` and `noise` are starting values.
    """
    table = table_of(facts)
    hidden = [name for name in size.labels if name != size.labels[-1] or table.block(name) is not None]  # the last is the output
    shapes = {name: shape for name in hidden if table.kind(name) == "mlp" and (shape := _shape(size, rms, name))}
    if not shapes:
        return not_recorded(
            "no hidden activation of an MLP was recorded at two checkpoints", "activation_mean_abs", "activation_rms"
        )
    name = max(shapes, key=lambda shape: abs(shapes[shape][1] - shapes[shape][0]))
    first, last = shapes[name]
    text = f"the shape of {name} goes from {first:.3f} to {last:.3f}, the most of {len(shapes)} modules"
    numbers = {"first": first, "last": last, "modules": float(len(shapes))}
    quiet = 0.0
    if dead is not None:
        step, row = last_row(dead)
        where, quiet = largest(row)
        numbers["silent"] = quiet
        text += f"; at most {quiet:.0%} of the units are silent at step {step}" + (f", in {where}" if quiet else "")
    changed = abs(last - first) > min_change
    shaped = any(abs(ratio - NORMAL) > noise for _, ratio in shapes.values())
    word: Word = "good" if changed and quiet <= silent else "watch" if changed or shaped else "bad"
    if cut := cut_off(findings, table, "mlp"):
        word, text = worst_of(word, "watch"), f"{text}; {cut}"
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


def _shape(size: Series, rms: Series, name: str) -> tuple[float, float] | None:
    """Return the ratio of a module at its first and its last checkpoint."""
    mean, root = points(size, name), points(rms, name)
    above, below = mean.values, root.values
    if not np.array_equal(mean.steps, root.steps):
        _, mine, others = np.intersect1d(mean.steps, root.steps, return_indices=True)
        above, below = above[mine], below[others]
    used = below > 0
    ratio = above[used] / below[used]
    return (float(ratio[0]), float(ratio[-1])) if len(ratio) > 1 else None


@question("D3.6", needs=[relative_movement], wants=[gradient_norm, weight_rms, FACTS, FINDINGS], weighs=("barely_moving",))
def embedding_organizes(
    moved: Series,
    gradient: Series | None,
    sizes: Series | None,
    facts: Manifest | None,
    findings: Findings,
    *,
    min_change: float = 0.1,
    hardly: float = 0.01,
    early: int = 500,
    nothing: float = 1e-5,
) -> SeriesAnswer:
    """Does the embedding space organize itself?

    ## Looks at
    How far the embeddings have come from their random start, relative to it, and how far the other matrices have. The sampled
    grids of step 0 and of the last step show what became of them.
    ## Good
    The embeddings came `min_change` of their size or more (playbook D3.6 asks for a visible change).
    ## Watch
    An embedding came less than that, or barely_moving says that one stands still by now. Or one that stands still has no gradient
    where others have one, and nobody said that it is to be trained: adapters leave the embedding as it was.
    ## Bad
    An embedding stands still while the rest learns:

    - It came less than `hardly` of its size and, where other matrices are recorded, less than `min_change` of their median after
      `early` steps: it looks as random as at the start.
    - Where sizes are known, the way of an element counts as well: an embedding of size 1 comes as far as matrices of size 0.05
      where it moves by a twentieth of what they do.
    - An embedding is also bad that came less than `nothing`, a hundred roundings of float32, while the rest moved a hundred times
      as far.
    - The other limits are starting values.
    """
    table = table_of(facts)
    step, row = last_row(moved)
    embeddings = {name: value for name, value in row.items() if table.kind(name) == "embedding"}
    if not embeddings:
        return not_applicable("no tensor is known to embed tokens")
    trained = {name: value for name, value in embeddings.items() if table.is_trainable(name)}
    if not trained:
        return not_applicable(f"{largest(embeddings)[0]} is not trained")
    name, value = largest(trained)
    others = [tensor for tensor in row if tensor not in embeddings and table.is_trainable(tensor) and is_matrix(table, tensor)]
    beside = median([row[tensor] for tensor in others]) if others else 0.0
    keeps_up = _comes_as_far(name, others, row, sizes, min_change)
    text = f"by step {step} {name} has moved by {value:.3g} of where it started"
    text += f", the other matrices by {beside:.3g}" if others else ""
    word = word_if_low(value, watch=min_change, bad=-np.inf)
    stands = value < nothing and beside > 100 * max(value, 0.1 * nothing)
    if stands or (value < hardly and not keeps_up and (not others or (value < min_change * beside and step >= early))):
        word = "bad"
    has_no_gradient = gradient is not None and bool(gradient.labels) and name not in gradient.places
    if word == "bad" and has_no_gradient and name not in table.facts:
        word, text = "watch", f"{text}; it has no gradient, and nobody said that it is to be trained"
    for finding in findings.of(barely_moving):
        if set(embeddings) & {finding.where, *finding.also}:
            word, text = (worst_of(word, "watch"), f"{text}; {finding.code} from step {finding.first_step}: {finding.message}")
    return SeriesAnswer(word=word, sentence=text, numbers={"moved": value} | ({"others": beside} if others else {}))


def _comes_as_far(name: str, others: Sequence[str], row: Mapping[str, float], sizes: Series | None, share: float) -> bool:
    """Tell whether an element of a tensor moved by `share` of the distance of others' elements or more; false if unknown."""
    first = dict(zip(sizes.labels, sizes.values[0].tolist(), strict=True)) if sizes else {}
    ways = [row[tensor] * first[tensor] for tensor in others if math.isfinite(first.get(tensor, math.nan))]
    return bool(ways) and name in first and row[name] * first[name] >= share * median(ways)


# Attention or MLP that is cut off from the loss, or never updated, by what is found of its tensors.
def cut_off(findings: Findings, table: TensorTable, kind: str) -> str:
    """Return a sentence on the first finding that names this kind of branch; nothing where none does.

    Args:
        findings: Findings that are more than a note.
        table: Knows the kinds of tensors.
        kind: "attention" or "mlp".
    """
    for finding in sorted(findings.all, key=lambda illness: illness.first_step or 0):
        places = [place for place in (finding.where, *finding.also) if place] if finding.name in CUT_OFF else []
        if any(place.endswith(kind) or table.kind(place) == kind for place in places):
            since = "" if finding.first_step is None else f" from step {finding.first_step}"
            return f"{finding.code}{since}: {finding.message}"
    return ""
