"""The catalogue of contradictions within one checkpoint: values that contradict each other or their definition.

Severity is sev1 if arithmetic forbids the values, and sev2 if rounding, a unit or another convention could explain them.
"""

from collections.abc import Mapping

from ckaudit.contract.schema.report import Finding
from ckaudit.contract.violations import kind

STEP_AND_NAME = kind(
    "VAL001",
    "step_and_file_name",
    "sev2",
    "The step inside differs from the file name.",
    "The step inside rules: rename the file.",
)
SESSION_AND_NAME = kind(
    "VAL002",
    "session_or_rank_and_file_name",
    "sev2",
    "Session or rank inside differ from the file name.",
    "Rename the file after what it holds.",
)

_MOMENTS = "Compute all statistics of a tensor from the same elements."
MIN_ABOVE_MAX = kind("VAL003", "min_above_max", "sev1", "The smallest element is above the largest.", _MOMENTS)
PERCENTILES_DESCEND = kind(
    "VAL004", "percentiles_descend", "sev1", "Percentiles do not ascend.", "Write them in the order 1, 5, 25, 50, 75, 95, 99 %."
)
PERCENTILE_OUTSIDE = kind(
    "VAL005", "percentile_outside_range", "sev1", "A percentile lies outside minimum and maximum.", _MOMENTS
)
PERCENTILES_ARE_LEVELS = kind(
    "VAL006",
    "percentiles_are_levels",
    "sev2",
    "The percentiles are the levels themselves, not the values at them.",
    "Write the elements found at 1, 5, 25, 50, 75, 95 and 99 %.",
)
MEAN_OUTSIDE = kind("VAL007", "mean_outside_range", "sev1", "The mean lies outside minimum and maximum.", _MOMENTS)
STD_ABOVE_RANGE = kind(
    "VAL008", "std_above_range", "sev1", "The deviation is larger than the range of the elements allows.", _MOMENTS
)
NORM_AND_MOMENTS = kind(
    "VAL009", "norm_contradicts_moments", "sev1", "A norm is not the one that mean, deviation and size give.", _MOMENTS
)
NORM_AND_EXTREMES = kind(
    "VAL010", "norm_contradicts_extremes", "sev1", "A norm is smaller than one of the elements, or too large for them.", _MOMENTS
)
SPECTRAL_ABOVE_FROBENIUS = kind(
    "VAL011", "spectral_above_frobenius", "sev1", "The spectral norm is above the Frobenius norm.", "Iterate on the same matrix."
)
M2_AND_STD = kind("VAL012", "m2_contradicts_std", "sev1", "m2 is not numel times the squared deviation.", _MOMENTS)
SAMPLE_STD = kind(
    "VAL013",
    "sample_deviation",
    "sev2",
    "The deviation divides by n - 1.",
    "The contract asks for the population deviation, which divides by n.",
)
SHAPE_AND_NUMEL = kind(
    "VAL014", "shape_contradicts_numel", "sev1", "The number of elements is not the product of the shape.", "Count again."
)
NONFINITE_ABOVE_NUMEL = kind(
    "VAL015", "nonfinite_above_numel", "sev1", "More elements are not finite than there are.", "Count again."
)
WORD_WITHOUT_NONFINITE = kind(
    "VAL016",
    "nonfinite_extreme_uncounted",
    "sev2",
    "An extreme is not finite, yet no element is counted as such.",
    "Take the extremes of the finite elements, and count the others.",
)
TENSOR_MISSING = kind(
    "VAL017", "tensor_missing", "sev2", "A tensor is named that the file does not hold.", "Check the spelling of the name."
)
BEYOND_DTYPE = kind(
    "VAL018", "beyond_dtype", "sev1", "An element is larger than its type can hold.", "Write the type the elements have."
)
HASH_FORMAT = kind("VAL019", "hash_format", "sev2", "A hash has no readable form.", "Write algorithm:hex, such as blake2b:00ff.")

BINS_DESCEND = kind("VAL020", "bins_descend", "sev1", "The bins of a histogram do not ascend.", "Write edges from low to high.")
BINS_AND_COUNTS = kind(
    "VAL021", "bins_and_counts", "sev1", "Bins and counts do not fit together.", "n counts need n+1 edges or n centres."
)
COUNTED_OUTSIDE = kind("VAL022", "counted_outside_range", "sev1", "Elements are counted where the tensor has none.", _MOMENTS)
COUNTS_TOTAL = kind(
    "VAL023", "counts_total", "sev1", "The counts do not add up to the elements.", "Write counts, not shares or densities."
)
GRID_RAGGED = kind("VAL024", "grid_ragged", "sev1", "Rows of a grid differ in length.", "Write a rectangle of numbers.")
GRID_SHAPE = kind(
    "VAL025", "grid_shape", "sev1", "A grid is larger than 32 by 32 or than its tensor.", "Sample rows and columns floor(i*n/32)."
)
GRID_OUTSIDE = kind("VAL026", "grid_outside_range", "sev1", "A grid holds an element beyond minimum or maximum.", _MOMENTS)
GRID_PACKING = kind(
    "VAL027", "grid_packing", "sev1", "A packed grid cannot be unpacked.", "base64 of one byte for each element of its shape."
)
ATTENTION_GRID_RANGE = kind(
    "VAL028",
    "attention_grid_range",
    "note",
    "A sampled attention grid holds no probabilities, but scores before softmax.",
    "Sample after softmax: of scores nobody can tell what a head looks at.",
)
ATTENTION_ROW_MASS = kind(
    "VAL029",
    "attention_row_mass",
    "note",
    "Sampled attention of one query sums above 1.",
    "Sample after softmax, and scale nothing: of other numbers nobody can tell what a head looks at.",
)
GRID_HEADS = kind(
    "VAL030", "grid_heads", "sev2", "A layer has another number of grids than heads.", "Sample all heads of a layer or none."
)

HEADS_DISAGREE = kind(
    "VAL031", "heads_disagree", "sev1", "Per-head arrays of a layer differ in length.", "Write one number per query head."
)
KV_HEADS = kind(
    "VAL032", "kv_heads_do_not_divide", "sev1", "Query heads are no multiple of key heads.", "Write query heads as heads."
)
ENTROPY_RANGE = kind(
    "VAL033", "entropy_out_of_range", "sev1", "An entropy is negative or above the log of the keys.", "Use natural logarithms."
)
ENTROPY_AND_NORMALIZED = kind(
    "VAL034",
    "entropy_contradicts_normalized",
    "sev2",
    "The normalized entropy is below entropy over the log of all keys.",
    "Average over the same queries.",
)
ENTROPY_AND_MAXIMUM = kind(
    "VAL035",
    "entropy_contradicts_maximum",
    "sev2",
    "The largest probability is below what the entropy forces.",
    "Take both from the same queries, after softmax.",
)
SHARE_OUTSIDE = kind(
    "VAL036", "share_outside_0_1", "sev1", "A share or probability lies outside 0 to 1.", "Write shares, not percent."
)
SIMILARITY_OUTSIDE = kind("VAL037", "similarity_outside", "sev1", "A cosine lies outside -1 to 1.", "Normalise both vectors.")

RMS_AND_MOMENTS = kind("VAL038", "rms_contradicts_moments", "sev1", "rms is not the root of mean² + deviation².", _MOMENTS)
MEAN_ABS_RANGE = kind(
    "VAL039", "mean_abs_out_of_range", "sev1", "The mean absolute value is below |mean| or above rms.", _MOMENTS
)
P50_ABOVE_P99 = kind("VAL040", "p50_above_p99", "sev1", "The median is above the 99th percentile.", _MOMENTS)
DEAD_ABOVE_UNITS = kind("VAL041", "dead_above_units", "sev1", "More units are dead than there are.", "Count again.")
UNITS_AND_SHAPE = kind(
    "VAL042", "units_contradict_shape", "sev2", "units is not the last size of the shape.", "Count the last dimension."
)

RELATIVE_AND_NORM = kind(
    "VAL043", "relative_contradicts_norm", "sev1", "relative is not norm over the norm of the tensor.", "Divide again."
)
MOVED_AT_STEP_ZERO = kind(
    "VAL044", "moved_at_step_zero", "sev1", "Weights moved before the first update.", "Step 0 has no update; count from 0."
)
UPDATED_DESPITE_OVERFLOW = kind(
    "VAL045",
    "updated_despite_overflow",
    "sev1",
    "Weights moved although the scaler skipped the update.",
    "Read found_inf and the weights of the same step.",
)
CLIP_AND_NORM = kind(
    "VAL046",
    "clip_contradicts_norm",
    "sev2",
    "The clip coefficient is not clip_norm over the global norm.",
    "Read the norm before clipping.",
)
CLIPPED_ABOVE_LIMIT = kind(
    "VAL047", "clipped_above_limit", "sev2", "Gradients said to be clipped exceed clip_norm.", "Check gradients_source."
)
NEGATIVE = kind("VAL048", "negative_value", "sev1", "A value is negative that cannot be.", "Look at how it was computed.")
NEGATIVE_LOSS = kind(
    "VAL049",
    "negative_loss",
    "note",
    "The loss is negative: no mean negative log likelihood of tokens is, though a loss of another kind may be.",
    "Write nats per token, or say in run.json that loss_kind is other.",
)
EVENT_AFTER_STEP = kind(
    "VAL050", "event_after_step", "sev1", "The event lies after the step it is reported in.", "event_step is the earlier one."
)
EVENT_WITHOUT_TRIGGER = kind(
    "VAL051", "event_without_trigger", "sev2", "event_step is given, but no trigger names an event.", "Add it to triggers."
)
TIME_UNIT = kind("VAL052", "time_unit", "sev2", "A time is not in seconds since 1970.", "Divide milliseconds by 1000.")
HISTORY_LENGTHS = kind(
    "VAL053", "history_lengths", "sev1", "Columns of the history differ in length.", "Write null where nothing was recorded."
)
HISTORY_ORDER = kind(
    "VAL054", "history_order", "sev1", "Steps of the history do not ascend up to this step.", "Oldest first, each step once."
)
MOE_COUNTS = kind("VAL055", "moe_counts", "sev1", "Expert counts contradict what was routed.", "Count assignments, not tokens.")
PERPLEXITY_AND_LOSS = kind(
    "VAL056", "perplexity_contradicts_loss", "sev1", "A perplexity is not exp of its loss.", "Use the natural exponential."
)
PERPLEXITY_BELOW_ONE = kind("VAL057", "perplexity_below_one", "sev1", "A perplexity is below 1.", "It is exp of a loss above 0.")
PARITY = kind(
    "VAL058", "parity_contradicts_itself", "sev1", "Only one of absolute and relative difference is zero.", "Compare again."
)
REPLAY = kind(
    "VAL059", "replay_contradicts_itself", "sev1", "A replay says both identical and different.", "identical means every bit."
)
RANK_TIME = kind("VAL060", "rank_time", "sev1", "A part of the step takes longer than the step.", "Use one clock, in seconds.")
COST = kind("VAL061", "cost_contradicts_itself", "sev2", "Only one of time and share of the cost is zero.", "Divide again.")
MFU_PERCENT = kind("VAL062", "mfu_in_percent", "sev2", "mfu is above 1.", "Write a fraction: 0.55, not 55.")
MFU_ABOVE_PEAK = kind(
    "VAL063", "mfu_above_peak", "sev1", "mfu is above 100 % of the hardware's peak.", "Check FLOPs per token and peak."
)
GLOBAL_NORM = kind(
    "VAL064",
    "global_norm_below_tensors",
    "sev1",
    "The global gradient norm is below the root sum of squares of the tensors.",
    "Read both at the same place: after unscale, before clipping.",
)
TOLD_TWICE = kind("VAL065", "told_twice", "sev1", "One fact stands twice with two values.", "Write both from the same variable.")
RATE_RANGE = kind("VAL066", "rate_out_of_range", "sev1", "A rate lies outside 0 to 100 %.", "Look at how it was computed.")
STEPS_SEEN = kind(
    "VAL067", "steps_seen_above_step", "sev1", "More updates were applied than attempted.", "step counts every attempt."
)
RATIO_BELOW_ONE = kind("VAL068", "ratio_below_one", "sev1", "A maximum is below its median.", "straggler_ratio is max / median.")
LEFT_OUT_PATH = kind(
    "VAL069", "left_out_path", "sev2", "left_out names a path that the contract does not have.", "Use * for tensor names."
)
PLACEMENT = kind(
    "VAL070",
    "placement_without_rank",
    "sev2",
    "A part of a tensor is described in a file that names no rank.",
    "Write rank, or merge the parts.",
)
EMPTY_GROUPS = kind(
    "VAL071", "empty_groups", "sev2", "No parameter group holds a tensor, yet weights moved.", "Count the group's tensors."
)
TRIGGER_TWICE = kind("VAL072", "trigger_twice", "sev2", "A trigger is named twice.", "Write each reason once.")
GLOBAL_NORM_UNEXPLAINED = kind(
    "VAL073",
    "global_norm_unexplained",
    "sev2",
    "The tensors do not add up to the global gradient norm.",
    "Record all tensors, or name in left_out what is missing.",
)
EMPTY_TEXT = kind("VAL074", "empty_text", "sev2", "A name is given, but empty.", "Leave the field out where nothing is known.")
SAMPLED_ABOVE_NUMEL = kind(
    "VAL075",
    "sampled_above_numel",
    "sev1",
    "More elements were sampled than there are.",
    "Leave sampled out where all were seen.",
)
PROBE_SHIFT = kind(
    "VAL086",
    "probe_shift_unexplained",
    "sev2",
    "A probe was moved, but not said how, by how much, or from which probe.",
    "Write shift and shifted_by, and name the twin of p p.shifted.",
)
ROUTER_PROBABILITY = kind(
    "VAL087",
    "router_probabilities",
    "sev1",
    "The probabilities of a router are not those of all its experts.",
    "Average the softmax over the tokens: a share for each expert that is counted, in sum 1.",
)
LOAD_BALANCE = kind(
    "VAL088",
    "load_balance_unexplained",
    "sev2",
    "A load-balance loss is not what counts and probabilities give.",
    "It is the number of experts times the sum of shares times probabilities, before the coefficient.",
)


def is_of_other_unit(finding: Finding, units: Mapping[str, str]) -> bool:
    """Tell whether a finding reports a share among the scalars for being in percent although `units` has it in percent."""
    if finding.code not in (MFU_PERCENT.code, SHARE_OUTSIDE.code):
        return False
    parts = (finding.pointer or "").split("/")  # "/scalars/mfu", "/scalars/source_mix_share~1web"
    name = parts[2].partition("~1")[0] if len(parts) > 2 and parts[1] == "scalars" else ""
    return units.get(name) == "percent"
