"""The tab on attention: what the heads do."""

from ckaudit.audit.coverage.applicability import why_metric_not_applicable
from ckaudit.panels.annotations import threshold
from ckaudit.panels.checkpoint_charts import attention_grids, head_grids, redundancy, why_none
from ckaudit.panels.tab import TabBuilder, tab

READS = (
    "normalized_attention_entropy",
    "attn_entropy",
    "min_normalized_entropy",
    "max_attn_logit",
    "head_kind_share",
    "head_kind",
    "head_similarity",
    "dead_head_fraction",
    "uniform_head_fraction",
    "upper_triangle_mass",
)


@tab(40, asks=("D3.1", "D2.5", "D3.2", "D3.3"), rules=("logit_growth",), reads=READS)
def attention(builder: TabBuilder) -> None:
    """What is attention doing?"""
    _widths(builder)
    _patterns(builder)
    _faults(builder)


def _widths(builder: TabBuilder) -> None:
    """Add charts of the heads' entropy, and of the size of their logits."""
    builder.heat("head_entropy", "How wide does each head look, over time?", "normalized_attention_entropy")
    builder.curves(
        "entropy_timeline",
        "Do the narrowest heads collapse?",
        "normalized_attention_entropy",
        lines=threshold("ATTN001", "max_left_share"),
        max_curves=8,
    )
    builder.curves(
        "max_logit",
        "Do attention logits run away?",
        "max_attn_logit",
        log=True,
        max_curves=8,
        lines=threshold("ATTN002", "sev2_logit", "sev1_logit"),
    )


def _patterns(builder: TabBuilder) -> None:
    """Add charts of what the heads attend to, and of similar heads."""
    scene = builder.scene
    builder.curves("head_kinds", "What do the heads follow?", "head_kind_share", stacked=True)
    builder.heat("head_similarity", "Does a head do what another does?", "head_similarity")
    builder.add_of_both(lambda scene: redundancy(scene, "redundancy", "Which heads are alike?"))
    builder.add_of_both(lambda scene: head_grids(scene, "attention_grids", "Where do the heads look?"))
    if not attention_grids(scene).steps:
        builder.add_missing(
            why_metric_not_applicable(scene.run, "head_similarity")
            or why_none(scene, "attention", "sampled_qk_grid_32x32_per_head")
        )


def _faults(builder: TabBuilder) -> None:
    """Add charts of heads with useless attention, or with attention to tokens that must be hidden."""
    builder.curves(
        "dead_heads", "How many heads look at one token, or at all alike?", "dead_head_fraction", also=("uniform_head_fraction",)
    )
    builder.curves(
        "mask",
        "Does any head see later tokens?",
        "upper_triangle_mass",
        lines=threshold("MASK001", "max_future_share"),
        max_curves=6,
    )
