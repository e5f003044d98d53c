"""The wild split: what is drawn, that every fault does what it says, and how draws are added up."""

import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from ckaudit.cli.run import run
from ckaudit.lab.labels import TRUTHS
from ckaudit.lab.wild.damage import Amount, middle_matrix, middle_part, part_of
from ckaudit.lab.wild.draw import draw
from ckaudit.lab.wild.faults import FAULTS
from ckaudit.lab.wild.forms import PRINTED, as_form, as_printed
from ckaudit.lab.wild.pair import HEALTHY, ILL, NOTE, Pair, has_effect, pair_folder, write_note
from ckaudit.lab.wild.record import record
from ckaudit.lab.wild.score import Outcome, Verdict, judge, row
from ckaudit.lab.zoo import FAMILIES, WILD_TEST, families_of
from ckaudit.lab.zoo.optimizers import optimizer_of, schedule_of
from ckaudit.lab.zoo.recipe import Recipe

SMALL = replace(FAMILIES["tabular"], through="loop", steps=12, train=256, held_out=32, every=4)
AMOUNT = Amount(onset=6, strength=0.5)


def state(recipe: Recipe) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return recipe.model().state_dict()


def test_families_are_parted_and_a_draw_depends_on_its_number_alone() -> None:
    dev, test = families_of("wild-dev"), families_of("wild-test")
    assert set(test) == set(WILD_TEST)
    assert {*dev, *test} == set(FAMILIES)
    assert not set(dev) & set(test)
    one, again, other = draw("wild-dev", 3, 5), draw("wild-dev", 3, 5), draw("wild-dev", 4, 5)
    assert (one.family, one.fault, one.amount, one.healthy.lr) == (again.family, again.fault, again.amount, again.healthy.lr)
    assert one.training_seed != other.training_seed
    assert {draw("wild-dev", 3, index).family for index in range(len(dev))} == set(dev)


def test_every_truth_is_a_word_of_the_lab() -> None:
    for fault in FAULTS.values():
        assert {fault.truth, *fault.acceptable} <= set(TRUTHS)


@pytest.mark.parametrize(("name", "factor"), [("init_too_large", (150) ** 0.5), ("init_too_small", 1e-3)])
def test_initial_matrices_are_scaled(name: str, factor: float) -> None:
    healthy, ill = state(SMALL), state(FAULTS[name].done(SMALL, AMOUNT))
    for key, weight in healthy.items():
        expected = weight * factor if weight.dim() >= 2 else weight
        torch.testing.assert_close(ill[key], expected)


def test_weights_are_damaged_at_the_onset_alone() -> None:
    model = SMALL.model()
    optimizer = optimizer_of(SMALL, model)
    hook = FAULTS["half_zeroed"].done(SMALL, AMOUNT).gradients
    assert hook is not None
    _, weight = middle_matrix(model)
    hook(model, optimizer, 5)
    assert (weight != 0).all()
    hook(model, optimizer, 6)
    assert (weight[: len(weight) // 2] == 0).all()
    assert (weight[len(weight) // 2 :] != 0).all()


def test_parts_are_frozen_left_out_and_detached() -> None:
    gpt = replace(FAMILIES["gpt2"], through="loop")
    model = gpt.model()
    part = middle_part(model)
    inside = {name for name, _ in part_of(model)}
    assert inside < {name for name, _ in model.named_parameters()}
    frozen = FAULTS["part_frozen"].done(gpt, AMOUNT).model()
    assert {name for name, weight in frozen.named_parameters() if not weight.requires_grad} == inside
    recipe = FAULTS["not_in_optimizer"].done(gpt, AMOUNT)
    model = recipe.model()
    held = {id(weight) for group in optimizer_of(recipe, model).param_groups for weight in group["params"]}
    assert {name for name, weight in model.named_parameters() if id(weight) not in held} == inside
    cut = FAULTS["part_detached"].done(gpt, AMOUNT).model()
    rows = gpt.rows(torch.Generator().manual_seed(0), 2)
    gpt.loss(cut, rows).backward()
    assert {name for name, weight in cut.named_parameters() if weight.grad is None} >= inside
    assert part


def test_targets_are_permuted_in_part() -> None:
    source = torch.Generator().manual_seed(0)
    healthy = SMALL.rows(source, 200)
    ill = FAULTS["targets_noisy"].done(SMALL, AMOUNT).rows(torch.Generator().manual_seed(0), 200)
    moved = float((healthy["y"] != ill["y"]).float().mean())
    assert 0.5 < moved <= 0.6  # sixty in a hundred take part, and hardly one comes back to its own place
    assert torch.equal(healthy["x"], ill["x"])
    assert torch.equal(healthy["y"].sort(0).values, ill["y"].sort(0).values)


def test_rates_are_changed() -> None:
    recipe = replace(FAULTS["rate_raised"].done(SMALL, AMOUNT), schedule="constant", warmup=0)
    optimizer = optimizer_of(recipe, nn.Linear(1, 1))
    schedule, rates = schedule_of(recipe, optimizer), []
    for _ in range(8):
        rates.append(optimizer.param_groups[0]["lr"] / SMALL.lr)
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([1.0] * 5 + [500**0.5] * 3)


def test_batches_are_changed_on_their_way() -> None:
    def fed(name: str) -> list[dict[str, torch.Tensor]]:
        feed = FAULTS[name].done(SMALL, AMOUNT).feed
        assert feed is not None
        changed = feed({"x": torch.full((4, 2), float(number)), "y": torch.arange(4.0)} for number in range(1, 13))
        return list(changed)

    stuck = [float(batch["x"][0, 0]) for batch in fed("loader_stuck")]
    assert stuck == [1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5]
    bad = [float(batch["x"][0, 0]) / number for number, batch in enumerate(fed("bad_batch"), 1)]
    assert bad == pytest.approx([1.0] * 5 + [1000**0.5] + [1.0] * 6)
    half = fed("batches_doubled")[0]["y"]
    assert half.tolist() == [0, 1, 0, 1]


def test_a_checkpoint_as_printed_has_the_fields_of_the_contract_alone() -> None:
    document = {
        "schema_version": "ck.analysis.v1",
        "step": 10,
        "loss": 2.0,
        "scalars": {"learning_rate": 1e-3},
        "weights": {"w": {"mean": 0.0, "numel": 4, "histogram": {"bins": {"range": [0.0, 1.0], "count": 2}, "counts": [1, 3]}}},
        "activations": {"a": {"rms": 1.0}},
    }
    assert as_printed(document) == {
        "schema_version": "ck.analysis.v1",
        "step": 10,
        "loss": 2.0,
        "weights": {"w": {"mean": 0.0, "histogram": {"bins": [0.0, 0.5, 1.0], "counts": [1, 3]}}},
        "activations": {},
    }


PAIR = Pair(
    family="tabular",
    fault="rate_too_low",
    truth="learning_rate_too_low",
    acceptable=("missing_warmup",),
    is_fact=False,
    onset=1,
    strength=0.5,
    place="blocks.1",
    through="loop",
    optimizer="adam",
    schedule="constant",
    steps=20,
    seconds=1.0,
)


def logged(folder: Path, losses: list[float]) -> None:
    folder.mkdir(parents=True)
    lines = [json.dumps({"step": step, "train_loss_raw": loss}) for step, loss in enumerate(losses, 1)]
    (folder / "scalars.jsonl").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("ill", "expected"),
    [
        ([4.0 - 0.1 * step for step in range(20)], False),
        ([4.0 - 0.1 * step + 0.05 for step in range(20)], False),  # a fortieth of what the twin's fell
        ([4.0 - 0.09 * step for step in range(20)], True),
        ([4.0] * 10, True),  # it ended early
    ],
)
def test_an_effect_is_a_loss_that_ends_above_its_twins(tmp_path: Path, ill: list[float], expected: bool) -> None:
    logged(tmp_path / HEALTHY, [4.0 - 0.1 * step for step in range(20)])
    logged(tmp_path / ILL, ill)
    assert has_effect(tmp_path) is expected


def test_outcomes_are_added_up() -> None:
    def outcome(ill: Verdict, healthy: Verdict = Verdict(), *, effect: bool = True, learns: bool = True) -> Outcome:  # noqa: B008
        return Outcome(index=0, pair=PAIR, form="recorder", has_effect=effect, is_healthy=learns, ill=ill, healthy=healthy)

    right = Verdict(codes=("sev2 LOSS004",), causes=("missing_warmup",), confidence=0.9, places=("blocks.1.attn",))
    third = Verdict(codes=("sev1 X",), causes=("a", "b", "learning_rate_too_low"), confidence=0.8, places=("blocks.0",))
    unsure = Verdict(codes=("sev2 X",), causes=("a",), confidence=0.5)
    missed, alarm = Verdict(), Verdict(codes=("sev1 X",))
    line = row("all", [outcome(right), outcome(third), outcome(unsure, alarm), outcome(missed), outcome(alarm, effect=False)])
    counts = (line.found, line.right, line.among_three, line.sure_and_wrong, line.placed, line.grave, line.harmless_flagged)
    assert [(share.hits, share.of) for share in counts] == [(3, 4), (1, 4), (2, 4), (1, 4), (1, 4), (1, 5), (1, 1)]


def test_a_draw_is_recorded_judged_in_every_form_and_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    drawn = replace(draw("wild-dev", 0, 0), family="tabular", fault="sign_flipped", healthy=replace(SMALL, steps=60, lr=3e-3))
    folder = pair_folder(tmp_path, "wild-dev", 0, 0)
    record(drawn, folder)
    assert set(judge(folder / ILL, "recorder", since=10_000).codes) < set(judge(folder / ILL, "recorder").codes)
    printed = as_form(folder / ILL, "contract", tmp_path / "printed")
    for file in printed.iterdir():
        document = json.loads(file.read_text(encoding="utf-8"))
        assert {*document} <= {"schema_version", "step", "loss", *PRINTED}
    assert run(["lab", "score", "--split", "wild-dev", "--cache", str(tmp_path), "--format", "json", "--jobs", "1"]) == 0
    score = json.loads(capsys.readouterr().out)
    assert (score["draws"], score["broken"]) == (1, {})
    assert [form["name"] for form in score["forms"]] == ["recorder", "contract", "log"]
    assert score["forms"][0]["found"]["hits"] == 1  # a loss that climbs from the first step on
    assert score["forms"][0]["grave"]["hits"] == 0
    ledger = (tmp_path / "docs" / "wild-ledger.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[2:6] for line in ledger[1:]] == [
        ["wild-dev", "0", "1", form] for form in ("recorder", "contract", "log")
    ]


def test_what_is_not_recorded_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "score", "--split", "wild-test", "--seed", "7", "--cache", str(tmp_path)]) == 2
    assert "holds no draw of wild-test with seed 7" in capsys.readouterr().err
    for words in (["--seed", "x"], ["--draws", "0"], ["--split", "tame"]):
        assert run(["lab", "wild", *words]) == 2


def test_what_is_recorded_already_is_not_trained_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pair_folder(tmp_path, "wild-dev", 0, 0)
    folder.mkdir()
    write_note(folder / NOTE, PAIR)
    assert run(["lab", "wild", "--draws", "1", "--cache", str(tmp_path)]) == 0
    assert "0 of 1 draws to record" in capsys.readouterr().err
