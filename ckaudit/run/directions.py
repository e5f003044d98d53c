"""Which way attention is to look, as far as the name of its layer tells."""

from ckaudit.contract.tensor_names import direction_by_name
from ckaudit.run.series import Series


def may_be_causal(heads: Series) -> Series:
    """Return the heads that may have to keep to the past: all but those of encoders, and those that look across to one.

    Args:
        heads: A value per head, labels such as "decoder.layers.0.self_attn/head.3".
    """
    return heads.only(lambda head: direction_by_name(head.rpartition("/head")[0] or head) is None)
