"""Trainings of several processes, against the same training in one."""

import json

import msgspec
import numpy as np
import pytest
import torch

from ckaudit.audit import triage
from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.metrics.observability import heartbeat_missing
from ckaudit.metrics.ranks import straggler_ratio
from ckaudit.recorder import Recorder
from ckaudit.recorder.distributed.ranks import parameter_hash
from ckaudit.run.read import read_run
from ckaudit.validate import validate
from tests.forked import training
from tests.recorder.alike import differences, merged
from tests.recorder.conftest import LENGTH, VOCABULARY, TinyGPT

EVERYTHING = {"grids": "nested", "budget_kb": None, "steps": 4, "every": 2, "vital_every": 3}
KINDS = {"fsdp1": 1, "ddp2": 2, "fsdp2": 2, "hybrid4": 4, "tensor2": 2, "sequence2": 2}
RESUMED = {which: {"every": 2, "steps": 4, "start_step": start} for which, start in (("first", 0), ("second", 2))}
LONG = {"steps": 26, "blocks": 2}
TOGETHER = {  # in the same two processes
    **{name: {"kind": name[:-1], **EVERYTHING} for name, world in KINDS.items() if world == 2},
    **{f"{kind}-faulty": {"kind": kind, "slow": 1, "moved": 0, "steps": 8} for kind in ("ddp", "tensor")},
    **{f"{kind}-without": {"kind": kind, "steps": 4, "record": False, "blocks": 2} for kind in ("ddp", "fsdp", "tensor")},
    **{f"{kind}-clips": {"kind": kind, "clips": True, **EVERYTHING} for kind in ("ddp", "fsdp")},
    "fsdp-clips-without": {"kind": "fsdp", "clips": True, "steps": 4, "record": False},
    **{f"ddp-slow{rank}": {"kind": "ddp", "slow": rank, "steps": 13, "every": 100, "vital_every": 12} for rank in range(2)},
    "fsdp-spoils": {"kind": "fsdp", "spoils": 1, "steps": 6, "exact": True, "planned_steps": 6},
    "fsdp-leaves": {"kind": "fsdp", "every": 2, "leaves": 4},
    "ddp-keeps": {"kind": "ddp", "steps": 4, "every": 2, "keeps": True},
    **{f"{kind}-event": {"kind": kind, "steps": 8, "limits_after": 4, "every": 20, "spike": 6} for kind in ("ddp", "fsdp")},
    **{
        f"{kind}-{which}": {"kind": kind, "folder": f"{kind}-resumed", **each}
        for kind in ("ddp", "fsdp")
        for which, each in RESUMED.items()
    },
    **{f"{kind}-asks": {"kind": kind, "asks": True, "steps": 4, "may_fail": kind == "fsdp"} for kind in ("ddp", "fsdp")},
    "noise2": {"kind": "ddp", "shares": True, **LONG},
    "noise-off": {"kind": "ddp", "record": False, **LONG},
    "noise-fsdp": {"kind": "fsdp", "shares": True, "steps": 3, "may_fail": True},
    "norms-asks": {"kind": "norms", "asks": True, "steps": 3},
}
TRAININGS = {
    **{name: each | {"together": True} for name, each in TOGETHER.items()},
    "one": {"kind": "one", "world": 1, **EVERYTHING},
    "one-clips": {"kind": "one", "world": 1, "clips": True, **EVERYTHING},
    **{name: {"kind": name[:-1], "world": world, **EVERYTHING} for name, world in KINDS.items() if world != 2},
    "noise4": {"kind": "ddp", "world": 4, "shares": True, **LONG},
    **{f"{kind}-killed": {"kind": kind, "killed": 1, "every": 2} for kind in ("ddp", "fsdp")},
    **{
        f"fsdp-{how}": {"kind": "fsdp", how: 1, "steps": 4, "every": 2, "patience": 1, "may_fail": True}
        for how in ("closes", "absent")
    },
    **{
        f"{where}-{rank}": {"kind": "fsdp", "steps": 4, "broken": rank, "where": where, "may_fail": True}
        for where, rank in (("start", 0), ("start", 1), ("read", 0), ("look", 0))
    },
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder in which every training has recorded, with the exit codes of its ranks, and what all of them said."""
    folder = tmp_path_factory.mktemp("ranks")
    wanted = [
        {"world": 2, "folder": name, "blocks": 2 if name in ("one", *KINDS) else 1, **each} for name, each in TRAININGS.items()
    ]
    placed = [
        {**each, "folder": str(folder / each["folder"]), "weights": str(folder / name)}
        for name, each in zip(TRAININGS, wanted, strict=True)
    ]
    done = training("tests.recorder.many_ranks", *map(json.dumps, placed))
    assert done.returncode == 0, done.stderr
    return folder, dict(zip(TRAININGS, json.loads(done.stdout), strict=True)), done.stderr


@pytest.fixture
def folder_of(runs):
    """Return the folder of a training that went well on all ranks."""

    def find(name, *, is_killed=False):
        folder, ended, output = runs
        first, *others = ended[name]
        # gloo ends the rank that is left by an exception, or by a signal
        assert (first != 0 and others == [-9]) if is_killed else not any(ended[name]), output
        return folder / TRAININGS[name].get("folder", name)

    return find


def facts_of(folder, step):
    """Return the facts of every rank at a step."""
    paths = sorted(folder.glob(f"analysis_checkpoint_step_{step:08d}.rank*.json"))
    return [msgspec.json.decode(path.read_bytes(), type=Checkpoint).rank_facts for path in paths]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_many_ranks_records_what_one_process_does(folder_of, kind):
    found, expected = merged(folder_of(kind)), merged(folder_of("one"))
    assert found.keys() == expected.keys()
    assert [each["step"] for each in found.values()] == [0, 2, 4]
    for name, document in expected.items():
        if document["step"] and kind[:-1] in ("fsdp", "hybrid", "tensor", "sequence"):
            del document["optimizer"]["gradient_norm"]  # no rank has all of a gradient
        assert not [*differences(found[name], document)], name


@pytest.mark.parametrize("kind", [kind for kind, world in KINDS.items() if world > 1])
def test_a_run_of_many_ranks_is_sound(folder_of, kind):
    folder, world = folder_of(kind), KINDS[kind]
    assert not validate([folder]).findings
    outcomes = [check.outcome for check in triage(folder).checks]
    assert sum(outcome in ("passed", "failed") for outcome in outcomes) >= 4, outcomes
    # Where all tensors are sharded there is none that ranks have alike; with tensors split by rank all see the same batch.
    has_common, has_parts = kind[:-1] in ("ddp", "tensor", "sequence"), kind[:-1] in ("ddp", "fsdp", "hybrid")
    for step in (0, 2, 4):
        facts = facts_of(folder, step)
        assert len(facts) == world
        assert len({each.parameter_hash for each in facts}) == 1
        assert bool(facts[0].parameter_hash) is has_common
        assert len({each.data_hash for each in facts}) == (world if step and has_parts else 1)
    lines = [json.loads(line) for line in (folder / "scalars.jsonl").read_bytes().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 5))


@pytest.mark.parametrize("kind", ["ddp", "tensor"])
def test_a_slow_rank_and_a_drifting_one_show(folder_of, kind):
    folder = folder_of(f"{kind}-faulty")
    assert (straggler_ratio(read_run(folder)).values[-2:, 0] > 1.2).all()
    quick, slow = facts_of(folder, 8)
    assert slow.step_time > max(0.03, quick.step_time)
    assert slow.input_time > max(0.03, quick.input_time)
    same = [len({each.parameter_hash for each in facts_of(folder, step)}) == 1 for step in (0, 4, 8)]
    assert same == [True, True, False]


@pytest.mark.parametrize("slow", [0, 1])
def test_a_slow_loader_stalls_its_own_rank_and_the_others_wait_for_it(folder_of, slow):
    """Every step one rank sleeps 60 ms before its forward pass; the lines are those of rank 0."""
    line = json.loads((folder_of(f"ddp-slow{slow}") / "scalars.jsonl").read_bytes().splitlines()[11])
    assert line["step_time"] > 0.03
    stalled, waiting = (line[name] * line["step_time"] for name in ("dataloader_stall_frac", "comm_time_frac"))
    assert (stalled >= 0.03) is (slow == 0)
    assert (waiting > 0.02) is (slow == 1)
    assert line["compute_time_frac"] * line["step_time"] < line["step_time"] - 0.02


def test_where_the_exchange_cannot_be_told_from_the_rest_neither_is_recorded(folder_of):
    line = json.loads((folder_of("tensor2") / "scalars.jsonl").read_bytes().splitlines()[2])
    assert line.keys() & {"step_time", "dataloader_stall_frac"} == {"step_time", "dataloader_stall_frac"}
    assert not line.keys() & {"comm_time_frac", "compute_time_frac", "tokens_per_sec"}


@pytest.mark.parametrize(
    "pair",
    ["ddp2 ddp-without", "fsdp2 fsdp-without", "tensor2 tensor-without", "fsdp-clips fsdp-clips-without", "noise2 noise-off"],
)
def test_ranks_train_the_same_with_and_without(folder_of, pair):
    recorded, bare = map(folder_of, pair.split())
    for rank in range(2):
        first, second = (torch.load(f"{folder}.{rank}") for folder in (recorded, bare))
        assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_clipping_by_the_recorder_reads_gradients_before_it(folder_of, kind):
    found, expected = merged(folder_of(f"{kind}-clips")), merged(folder_of("one-clips"))
    assert {each["gradients_source"] for each in found.values() if each["step"]} == {"pre_clip"}
    for document in expected.values() if kind == "fsdp" else ():
        document.get("optimizer", {}).pop("gradient_norm", None)  # no rank has all of a gradient
    assert not [*differences(found, expected)]
    lines = [json.loads(line) for line in (folder_of(f"{kind}-clips") / "scalars.jsonl").read_bytes().splitlines()]
    np.testing.assert_allclose([line["torch_norm"] for line in lines], [line["grad_global_norm"] for line in lines], rtol=1e-5)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_an_event_that_the_first_rank_sees_has_its_checkpoint(folder_of, kind):
    folder = folder_of(f"{kind}-event")
    event = merged(folder)["analysis_checkpoint_step_00000007.json"]
    assert "loss_spike" in event["triggers"]
    assert event["event_step"] == 6
    assert event["weights"]["head.weight"]["frobenius_norm"] > 0
    assert event["weight_deltas"].keys() == event["gradients"].keys() == event["weights"].keys()
    # Without shared tensors ranks do not talk to each other, and one that wrote alone would have the other look dead.
    assert len(facts_of(folder, 7)) == (0 if kind == "ddp" else 2)
    assert not heartbeat_missing(read_run(folder)).values.any()


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tensor"])
def test_vital_signs_need_no_other_rank(folder_of, kind):
    lines = [json.loads(line) for line in (folder_of(f"{kind}2") / "scalars.jsonl").read_bytes().splitlines()]
    first, having = lines[2], {"max_attn_logit", "min_normalized_entropy", "residual_rms_p50/blocks.0"}
    assert first["step"] == 3
    assert first.keys() >= having
    # How far sharded weights moved takes all ranks, and stands where they meet for a checkpoint.
    assert ["update_to_weight" in line for line in lines[:3]] == [False, True, kind == "ddp"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_what_is_asked_for_is_measured_by_the_first_rank_where_it_can_be_alone(folder_of, kind):
    folder = folder_of(f"{kind}-asks")
    lines = [json.loads(line) for line in (folder / "scalars.jsonl").read_bytes().splitlines()]
    alone = {"fixed_probe_loss", "curvature_trace_est"}
    assert lines[-2].keys() & alone == (alone if kind == "ddp" else set())
    table = json.loads((folder / "run.json").read_bytes())["tensors"]
    assert any("operator" in facts for facts in table.values()) is (kind == "ddp")
    assert merged(folder)["analysis_checkpoint_step_00000004.json"]["weights"]["head.weight"]["frobenius_norm"] > 0
    assert len(facts_of(folder, 4)) == 2


def test_a_pinned_batch_needs_no_other_rank_where_a_forward_pass_sends_running_statistics(folder_of):
    folder = folder_of("norms-asks")
    assert not validate([folder]).findings
    assert b"fixed_probe_loss" in (folder / "scalars.jsonl").read_bytes()


def test_ranks_that_hold_gradients_whole_know_what_is_carried_over_and_those_that_hold_parts_do_not(folder_of):
    assert carried_over(folder_of("ddp2")) == {2: 0.0, 3: 0.0, 4: 0.0}
    assert carried_over(folder_of("fsdp2")) == {}
    assert min(carried_over(folder_of("ddp-keeps")).values()) > 0.3


def carried_over(folder):
    """Return {step: share} of the lines that say how much of the gradients earlier steps left."""
    lines = [json.loads(line) for line in (folder / "scalars.jsonl").read_bytes().splitlines()]
    return {line["step"]: line["grad_carried_over"] for line in lines if "grad_carried_over" in line}


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_rank_that_dies_leaves_whole_files(folder_of, kind):
    folder = folder_of(f"{kind}-killed", is_killed=True)
    assert [finding.code for finding in validate([folder]).findings if finding.severity in ("sev0", "sev1")] == []
    assert {len(facts_of(folder, step)) for step in (0, 2, 4)} == {2}


def test_a_nan_in_the_part_of_another_rank_is_seen(folder_of):
    folder = folder_of("fsdp-spoils")
    lines = [json.loads(line) for line in (folder / "scalars.jsonl").read_bytes().splitlines()]
    assert [line["grad_global_norm"] == "NaN" for line in lines] == [False, False, False, True, True, True]
    found = merged(folder)["analysis_checkpoint_step_00000004.json"]
    assert found["gradients"]["head.weight"]["norm"] == found["weight_deltas"]["head.weight"]["norm"] == "NaN"
    assert found["gradients"]["head.weight"]["nonfinite_count"] == found["weights"]["head.weight"]["nonfinite_count"] == 1
    assert found["optimizer"]["state_finite"] is False
    last = merged(folder)["analysis_checkpoint_step_00000006.json"]
    assert "last" in last["triggers"]
    assert all(each["hash"] for each in last["weights"].values())


def test_closing_in_the_middle_of_a_step_needs_no_other_rank(folder_of):
    found = merged(folder_of("fsdp-leaves"))
    assert [each["step"] for each in found.values()] == [0, 2, 3]
    assert [each["step"] for each in found.values() if each.get("weights")] == [0, 2]


@pytest.mark.parametrize("how", ["closes", "absent"])
def test_a_rank_that_answers_no_more_is_not_waited_for_long(folder_of, how):
    found = merged(folder_of(f"fsdp-{how}"))
    assert [each["step"] for each in found.values()] == [0, 2, 4]
    whole = [each["step"] for each in found.values() if each.get("weights")]
    assert whole == ([0, 2] if how == "closes" else [])


@pytest.mark.parametrize("where", ["start-0", "start-1", "read-0", "look-0"])
def test_a_recorder_that_fails_on_one_rank_holds_up_no_other(folder_of, runs, where):
    found = merged(folder_of(where))
    assert "failed and the training goes on without it: ValueError: broken" in runs[2]
    assert [each["step"] for each in found.values()] == ([] if where == "start-0" else [0, 4])
    assert [each["step"] for each in found.values() if each.get("weights")] == ([0, 4] if where == "read-0" else [])
    if where == "look-0":
        assert found["analysis_checkpoint_step_00000004.json"]["gradients"]["head.weight"]["norm"] > 0


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_rank_resumes_in_the_session_of_the_first(folder_of, kind):
    folder = folder_of(f"{kind}-second")
    assert folder == folder_of(f"{kind}-first")
    sessions = {path.name[34:]: json.loads(path.read_bytes())["session"] for path in folder.glob("*step_00000004*")}
    assert sessions == {
        **dict.fromkeys(("json", "rank000.json", "rank001.json"), 1),
        **dict.fromkeys(("session000.json", "session000.rank000.json", "session000.rank001.json"), 0),
    }
    moved = [each["weight_deltas"]["head.weight"]["moved"] for each in merged(folder).values() if each["step"]]
    assert len(moved) == 4
    assert min(moved) > 0
    assert not validate([folder]).findings


def noise(world):
    """Return noise and signal of each step without DDP, from gradients of each rank's batch in turn, summed in float64."""
    torch.manual_seed(0)
    model, source, small = TinyGPT(), torch.Generator().manual_seed(0), 4 / world
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(LONG["steps"]):
        tokens = torch.randint(0, VOCABULARY, (4, LENGTH + 1), generator=source)
        alone = []
        for part in tokens.chunk(world):
            loss = torch.nn.functional.cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten())
            alone.append(torch.autograd.grad(loss, list(model.parameters())))
        for parameter, slopes in zip(model.parameters(), zip(*alone, strict=True), strict=True):
            parameter.grad = torch.stack(slopes).mean(0)
        own = sum(float((slope.double() ** 2).sum()) for slope in alone[0])
        mean = sum(float((each.grad.double() ** 2).sum()) for each in model.parameters())
        yield (own - mean) / (1 / small - 1 / 4), (4 * mean - small * own) / (4 - small)
        optimizer.step()


@pytest.mark.parametrize("world", [2, 4])
def test_the_noise_of_ranks_is_that_of_their_batches_one_by_one(folder_of, world, lines):
    kept, expected = np.zeros(2), {}
    for step, pair in enumerate(noise(world), 1):
        kept = 0.95 * kept + 0.05 * np.array(pair)
        if step >= 10 and kept[1] > 0:
            expected[step] = kept[0] / kept[1]
    found = {line["step"]: line["grad_noise_scale"] for line in lines(folder_of(f"noise{world}")) if "grad_noise_scale" in line}
    assert len(expected) > 5
    assert found == pytest.approx(expected, rel=1e-3)
    last = lines(folder_of(f"noise{world}"))[-1]
    seen = 1 - 0.95 ** LONG["steps"]
    assert (last["grad_noise_trace"], last["grad_noise_signal"]) == pytest.approx(tuple(kept / seen), rel=1e-3)


def test_where_ranks_hold_parts_of_the_gradients_there_is_none(folder_of, runs, lines):
    assert not any("grad_noise_scale" in line for line in lines(folder_of("noise-fsdp")))
    assert "asking for a rank's own gradient failed" in runs[2]


def test_a_single_rank_has_nothing_to_compare(tiny, batches, loss_of, tmp_path, caplog):
    model = tiny()
    with Recorder(model, tmp_path) as recorder:
        recorder.rank_batch(4)
        loss_of(model, batches(1)[0]).backward()
        recorder.step(1.0)
    assert "there is only one rank" in caplog.text
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64])
def test_a_hash_of_parameters_sees_one_bit_and_not_the_layout(dtype):
    weight = torch.randn(6, 5, dtype=dtype)
    plain = parameter_hash([weight, torch.ones(())])
    assert parameter_hash([weight.t().contiguous().t(), torch.ones(())]) == plain
    weight[3, 2] *= 1.01
    assert parameter_hash([weight, torch.ones(())]) != plain
    assert parameter_hash([]) is None
