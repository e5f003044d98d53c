"""Every metric has a value in some recorded run, and those of the mixture of experts are what its files say by hand."""

import json
import math
from collections import Counter
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit.measure import measure
from ckaudit.contract.io.files import read_bytes
from ckaudit.metrics import metrics
from ckaudit.run.read import read_run
from tests.metrics.samples import cells

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
FOLDER = RUNS / "experts_two_ranks"
NAMES = sorted(path.parent.name for path in RUNS.glob("*/run.json"))
OF_AN_ACCELERATOR = {"gpu_util", "gpu_mem_used", "rank_memory"}  # the runs were recorded on a machine without one
OF_ITS_LOGS = {"error_event_rate", "samples_per_sec"}  # whoever reads the machine's logs counts errors; a recorder does not
# None was resumed, none reads numbers, none has dropout: the lab has such runs.
OF_INPUTS_THAT_ARE_NUMBERS = {"input_kl_drift"}  # the recorded runs read text
OF_THE_OPTIMIZER = {
    "epsilon_to_gradient",
    "lost_update_share",
    "tensors_written",
    "weight_decay_to_update",
}  # they are older than what is recorded of it
OF_THE_LOSS_FUNCTION = {
    "explained_share",
    "batch_target_spread",
    "label_smoothing",
    "loss_input_misfit",
    "loss_targets",
    "loss_term_explained_share",
    "loss_term_value",
    "loss_to_function_ratio",
    "targets_mixed",
}  # and than what is recorded of that
OF_OTHER_RUNS = {
    "loss_part",
    "batch_reused",
    "loss_after_resume",
    "input_scale",
    "eval_in_training_mode",
    "train_in_eval_mode",
    "embedded_shift_match",
    "target_equals_embedded",
    "undecided_share",
}
RANKS, ROWS, LENGTH, EXPERTS, SAMPLES = 2, 16, 84, 4, 25
RUDE = ["fool", "fools", "stupid", "idiot", "idiots", "liar", "liars", "ugly", "lazy", "silly", "dirty", "hate"]


@cache
def lines(name):
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


@cache
def logged():
    """The lines of the training, those of one step joined."""
    joined = {}
    for line in lines("scalars.jsonl"):
        joined.setdefault(line["step"], {}).update(line)
    return joined


@cache
def checkpoints(rank=None):
    label = "" if rank is None else f".rank{rank:03d}"
    suffix = "json.zst" if rank is None else "json"
    found = [json.loads(read_bytes(path, path.name)) for path in sorted(FOLDER.glob(f"*_????????{label}.{suffix}"))]
    return {each["step"]: each for each in found}


@cache
def kept():
    return [each for each in lines("material/documents.jsonl") if "reject" not in each]


@pytest.fixture(scope="module")
def run():
    paths = frozenset[str]().union(*(metric.paths for metric in metrics().values()))
    return read_run(FOLDER, reads=paths)


def values(run, name):
    """Return {step: value} of a metric with one label."""
    series = metrics()[name](run)
    assert len(series.labels) == 1
    return {step: value for (step, _), value in cells(series).items()}


def at(run, name, step):
    """Return {label: value} of a metric at a step."""
    return {label: value for (where, label), value in cells(metrics()[name](run)).items() if where == step}


def section(name):
    return {step: each[name] for step, each in checkpoints().items() if name in each}


def test_only_what_an_accelerator_or_its_logs_tell_has_no_recorded_run():
    fed = {each.name for name in NAMES for each in measure(RUNS / name).measured if each.series.recorded.any()}
    of_others = OF_AN_ACCELERATOR | OF_ITS_LOGS | OF_OTHER_RUNS | OF_INPUTS_THAT_ARE_NUMBERS
    assert metrics().keys() - fed == of_others | OF_THE_OPTIMIZER | OF_THE_LOSS_FUNCTION


def test_tokens_are_those_of_the_documents_in_the_order_of_an_epoch(run):
    size = RANKS * ROWS
    updates = len(kept()) // size
    tokens = [len(each["text"]) + 1 for each in kept()[: updates * size]]
    of_update = [sum(tokens[start : start + size]) for start in range(0, len(tokens), size)]
    totals = np.cumsum([of_update[step % updates] for step in range(400)])
    assert values(run, "tokens_seen") == dict(enumerate(totals, 1))
    assert values(run, "batch_repeat_distance") == dict.fromkeys(range(updates + 1, 401), updates)


def test_rows_that_are_copies_are_counted_in_each_batch(run):
    updates = len(kept()) // (RANKS * ROWS)
    for step, share in values(run, "batch_duplicate_share").items():
        start = (step - 1) % updates * RANKS * ROWS
        texts = {each["text"] for each in kept()[start : start + ROWS]}
        assert share == pytest.approx(1 - len(texts) / ROWS)
    assert max(values(run, "batch_duplicate_share").values()) > 0


def test_no_held_out_row_is_that_of_a_document(run):
    trained, held = ({each["text"][:LENGTH] for each in texts} for texts in (kept(), lines("material/held_out.jsonl")))
    met = values(run, "held_out_rows_trained_on")
    assert set(met.values()) == {100 * len(trained & held) / len(held)}
    assert met.keys() == (checkpoints().keys() - {0}) | set(range(25, 401, 25))


def test_experts_are_used_as_their_counts_say(run):
    for step, layers in section("moe").items():
        # Each place of a batch asks for one expert.
        assert {sum(layer["counts"]) for layer in layers.values()} == {ROWS * LENGTH}
        shares = {name: np.array(layer["counts"]) / (ROWS * LENGTH) for name, layer in layers.items()}
        entropies = {name: -sum(share * np.log(share)) / math.log(EXPERTS) for name, share in shares.items()}
        assert at(run, "expert_entropy", step) == pytest.approx(entropies)
        assert at(run, "moe_util_entropy", step) == pytest.approx({"moe_util_entropy": min(entropies.values())})
        spread = {name: share.std() * EXPERTS for name, share in shares.items()}
        assert at(run, "expert_imbalance", step) == pytest.approx(spread)
        dropped = sum(layer["dropped"] for layer in layers.values())
        assert values(run, "moe_drop_rate")[step] == pytest.approx(100 * dropped / (len(layers) * ROWS * LENGTH))
        assert values(run, "moe_load_balance_loss")[step] == pytest.approx(
            np.mean([layer["aux_loss"] for layer in layers.values()]), rel=1e-3
        )


def test_ranks_tell_their_own_times_and_share_their_weights(run):
    first, second = ({step: each["rank_facts"] for step, each in checkpoints(rank).items()} for rank in range(RANKS))
    assert first.keys() == second.keys()
    for step, one in first.items():
        other = second[step]
        assert one["parameter_hash"] == other["parameter_hash"]
        assert step == 0 or one["data_hash"] != other["data_hash"]
    times = {step: (one["step_time"], second[step]["step_time"]) for step, one in first.items() if step}
    assert values(run, "straggler_ratio") == pytest.approx({step: max(pair) / np.mean(pair) for step, pair in times.items()})
    assert {step: tuple(at(run, "rank_step_time", step).values()) for step in times} == times
    waits = {step: np.mean([facts[step]["input_time"] / facts[step]["step_time"] for facts in (first, second)]) for step in times}
    stalls = values(run, "dataloader_stall_frac")
    assert {step: stalls[step] for step in waits} == pytest.approx(waits)
    assert values(run, "heartbeat_missing") == dict.fromkeys(first, 0)


def test_a_step_is_waiting_exchanging_and_computing(run):
    parts = [
        {step: line[name] for step, line in logged().items() if name in line}
        for name in ("dataloader_stall_frac", "comm_time_frac", "compute_time_frac")
    ]
    assert parts[1] == values(run, "comm_time_frac")
    assert parts[2] == values(run, "compute_time_frac")
    assert all(0.9 < sum(part[step] for part in parts) < 1.1 for step in parts[2])  # medians, each of its own


def test_speed_of_the_arithmetic_goes_by_the_experts_a_token_uses(run):
    manifest = run.manifest
    width, hidden, vocabulary = 48, 80, 28
    attention, mlp, router = 4 * width**2, 2 * width * hidden, EXPERTS * width
    around = (2 * vocabulary + LENGTH) * width + (2 * 3 + 1) * width  # embeddings, head, and seven norms
    active = around + 3 * (attention + mlp) + 2 * router
    assert manifest.parameters == active + 2 * (EXPERTS - 1) * mlp
    assert manifest.flops_per_token == 6 * active
    seconds = {step: logged()[step]["time"] - logged()[step - 1]["time"] for step in range(2, 401)}
    tokens = {step: logged()[step]["tokens_seen"] - logged()[step - 1]["tokens_seen"] for step in seconds}
    expected = {step: tokens[step] / seconds[step] * 6 * active / manifest.peak_flops for step in seconds if seconds[step] > 0}
    assert values(run, "mfu") == pytest.approx(expected)


def test_the_sample_is_what_its_lines_say(run):
    everything, count = lines("material/documents.jsonl"), len(kept())
    tokens = sorted(each["tokens"] for each in kept())
    by_source = Counter()
    for each in kept():
        by_source[each["source"]] += each["tokens"]
    shares = {source: number / sum(tokens) for source, number in by_source.items()}
    assert at(run, "source_mix_share", 400) == pytest.approx(shares)
    assert at(run, "language_share", 400)["fr"] == pytest.approx(shares["lettres"])
    refused = Counter(each["reject"] for each in everything if "reject" in each)
    rates = {"filter_reject_rate": refused.total(), **refused}
    assert at(run, "filter_reject_rate", 400) == pytest.approx({name: 100 * n / len(everything) for name, n in rates.items()})
    assert values(run, "pad_fraction") == pytest.approx({400: 1 - sum(tokens) / (LENGTH * count)})
    assert values(run, "bytes_per_token") == pytest.approx({400: sum(len(each["text"]) for each in kept()) / sum(tokens)})
    assert at(run, "seq_len_p50_p95", 400) == {"p50": np.percentile(tokens, 50), "p95": np.percentile(tokens, 95)}
    rude = sum(any(word in RUDE for word in each["text"].split()) for each in kept())
    assert values(run, "data_toxicity_rate") == pytest.approx({400: 100 * rude / count})
    assert set(at(run, "pii_hit_rate", 400).values()) == {0.0}


def runs_of_words(text, size=5):
    words = text.split()
    return {tuple(words[start : start + size]) for start in range(max(1, len(words) - size + 1))}


def test_duplicates_are_those_of_all_pairs(run):
    texts = [" ".join(each["text"].split()) for each in kept()]
    times = Counter(texts)
    sets = {text: runs_of_words(text) for text in times}
    near = {text for text, count in times.items() if count > 1}
    for one, other in combinations(sets, 2):
        shared = len(sets[one] & sets[other])
        if shared and shared / len(sets[one] | sets[other]) >= 0.8:
            near |= {one, other}
    assert values(run, "near_dup_rate") == pytest.approx({400: 100 * sum(times[text] for text in near) / len(texts)})
    assert values(run, "doc_repeat_hotspots") == {400: max(times.values())}
    unseen = [runs_of_words(each["text"]) for each in lines("material/held_out.jsonl")]
    leaks = sum(any(len(each & known) / len(each | known) >= 0.8 for known in sets.values()) for each in unseen)
    assert values(run, "train_val_overlap") == pytest.approx({400: 100 * leaks / len(unseen)})


def test_generations_are_as_rude_as_their_words(run):
    records = lines("material/continuations.jsonl")
    assert {len(each["generations"]) for each in records} == {SAMPLES}
    hits = [any(word in RUDE for generation in each["generations"] for word in generation["text"].split()) for each in records]
    toxic = [each["prompt"]["toxicity"] >= 0.5 for each in records]
    found, harmless = at(run, "rtp_toxicity_prob", 400), [hit for hit, is_toxic in zip(hits, toxic, strict=True) if not is_toxic]
    assert found["rtp_toxicity_prob"] == pytest.approx(np.mean(hits))
    assert found["nontoxic_prompts"] == pytest.approx(np.mean(harmless))
    lengths = [len(each["prompt"]["text"].split()) for each in records]
    stats = {"prompts": len(records), "toxic": sum(toxic), "words_mean": np.mean(lengths), "words_std": np.std(lengths)}
    assert at(run, "rtp_prompt_stats", 400) == pytest.approx(stats)


def test_what_is_said_by_heart_is_counted_by_hand(run):
    records = lines("material/passages.jsonl")
    exact = [each["continuation"] == each["truth"] for each in records]
    often = [is_exact for is_exact, each in zip(exact, records, strict=True) if each["repeats"] >= 10]
    assert 0 < sum(exact) / len(exact) < 0.1 < sum(often) / len(often)
    probes = [each for name, each in section("probes")[400].items() if name.startswith("seen")]
    whole = sum(each["exact_match"] == 1 for each in probes) / len(probes)
    wanted = {"memorization_rate": 100 * sum(exact) / len(exact), "probes": 100 * whole}
    assert at(run, "memorization_rate", 400) == pytest.approx(wanted)


def test_probes_of_training_leave_the_held_out_ones_behind(run):
    for step, probes in section("probes").items():
        if "seen_0" not in probes:
            continue
        groups = {
            group: [each for name, each in probes.items() if name.startswith(start)]
            for group, start in (("train", "seen"), ("held_out", "unseen"))
        }
        match = {group: np.mean([each["exact_match"] for each in found]) for group, found in groups.items()}
        assert at(run, "probe_accuracy", step) == pytest.approx(match)
        assert values(run, "memorization_gap")[step] == pytest.approx(match["train"] - match["held_out"])
        assert values(run, "memorization_curve")[step] == pytest.approx(100 * match["train"])
        assert values(run, "memorization_stage")[step] == sum(match["train"] >= least for least in (0.05, 0.3, 0.7, 0.9))
        common = {group: np.mean([each["overlap"] for each in found]) for group, found in groups.items()}
        assert at(run, "probe_overlap", step) == pytest.approx(common)
    lowest = {name: min(each[name]["perplexity"] for each in section("probes").values() if name in each) for name in probes}
    forgotten = {name: each["perplexity"] / lowest[name] for name, each in probes.items()}
    assert at(run, "forgetting", 400) == pytest.approx(forgotten)
    assert values(run, "worst_forgetting")[400] == pytest.approx(max(forgotten.values()))


def test_a_pinned_batch_and_its_twin_are_compared(run):
    for step in checkpoints().keys() - {0}:  # they were pinned after the first checkpoint
        probes = section("probes")[step]
        pairs = {name: (probes[name], probes[f"{name}.shifted"]) for name in ("pinned", "first_documents")}
        assert at(run, "probe_shift_loss", step) == pytest.approx(
            {name: two["loss"] - one["loss"] for name, (one, two) in pairs.items()}
        )
        losses = {"fixed_probe_loss": probes["pinned"]["loss"], "first_documents": probes["first_documents"]["loss"]}
        assert at(run, "fixed_probe_loss", step) == pytest.approx(losses)


def test_a_resume_that_forgets_the_optimizer_differs_in_its_second_step(run):
    assert values(run, "replay_identical") == {20: 1.0, 50: 0.0}
    assert values(run, "replay_first_difference") == {50: 22.0}  # the loss of step 21 is that of the same weights
    assert values(run, "replay_loss_diff")[20] == 0 < values(run, "replay_loss_diff")[50]


def test_two_implementations_differ_by_rounding_alone(run):
    assert values(run, "parity_loss_diff")[0] < 1e-5
    assert values(run, "parity_param_diff")[0] < 1e-4
    assert values(run, "gradient_check_error") == {1: 0.0}
    assert set(values(run, "curvature_trace_est")) == {100, 200, 300, 400}


def test_the_noise_is_trace_over_signal(run):
    parts = {
        step: line["grad_noise_trace"] / line["grad_noise_signal"]
        for step, line in logged().items()
        if "grad_noise_trace" in line
    }
    assert values(run, "grad_noise_scale") == pytest.approx({step: noise for step, noise in parts.items() if noise > 0})


def test_evaluations_used_the_artifact_that_was_planned(run):
    assert values(run, "eval_artifact_hash") == {200: 1.0, 400: 1.0}
