"""Inputs of loss functions: sections of a checkpoint."""

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from ckaudit.contract.schema.numbers import Count, NonNegative, Number, doc


class LossFunctionStats(Struct, kw_only=True, omit_defaults=True):
    """What the loss function of this step was given on the first rank: of those called with gradients, the one with most targets.

    Values are means over the targets, without weights and smoothing: nats of an entropy, squares of the error of a regression,
    whichever of its kind the function is.
    """

    function: Annotated[str | UnsetType, doc("Name of the function in torch.nn.functional, such as cross_entropy.")] = UNSET
    classes: Annotated[Count | UnsetType, doc("Number of classes.")] = UNSET
    targets: Annotated[Count | UnsetType, doc("Number of targets of this step that count; ignored targets are not included.")] = (
        UNSET
    )
    value: Annotated[Number | UnsetType, doc("Mean loss over these targets.")] = UNSET
    constant_value: Annotated[
        Number | UnsetType,
        doc("Loss of the best constant prediction on the targets of all checkpoints so far: their entropy, or their variance."),
    ] = UNSET
    batch_constant_value: Annotated[
        Number | UnsetType, doc("Loss of the best constant prediction on the targets of this step alone.")
    ] = UNSET
    normalized_share: Annotated[
        NonNegative | UnsetType,
        doc("Share of rows that are distributions: probabilities that sum to one, or their logs for nll_loss, ctc_loss; 0 to 1."),
    ] = UNSET
    smoothing: Annotated[NonNegative | UnsetType, doc("Label smoothing passed to the function, 0 to 1.")] = UNSET
    is_mixed: Annotated[bool | UnsetType, doc("Whether a row has targets of several classes, as mixed rows have.")] = UNSET
    is_broadcast: Annotated[
        bool | UnsetType,
        doc("Whether outputs and targets differ in shape, so that broadcasting compares each value with several others."),
    ] = UNSET


class LossTermStats(Struct, kw_only=True, omit_defaults=True):
    """One of several loss functions whose sum is trained on, without its weight in that sum; see LossFunctionStats."""

    targets: Annotated[Count | UnsetType, doc("Number of targets of this step that count.")] = UNSET
    value: Annotated[Number | UnsetType, doc("Mean loss over these targets.")] = UNSET
    constant_value: Annotated[
        Number | UnsetType, doc("Loss of the best constant prediction on the targets of all checkpoints so far.")
    ] = UNSET
    batch_constant_value: Annotated[
        Number | UnsetType, doc("Loss of the best constant prediction on the targets of this step alone.")
    ] = UNSET
