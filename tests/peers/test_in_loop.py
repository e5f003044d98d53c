"""Peers at a training: what they are told and when, that they change nothing, and what becomes of one that fails."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from msgspec.structs import replace

from benchmarks.peers import train_with_peers
from benchmarks.peers.in_loop import InLoopPeer, Spoken, known
from benchmarks.peers.torch_audit import TORCH_AUDIT, TORCH_AUDIT_EVERY_STEP
from benchmarks.peers.torchmortem import TORCHMORTEM
from benchmarks.peers.train_with_peers import run_training
from benchmarks.peers.trainscope import TRAINSCOPE
from benchmarks.peers.watched import WatchedChange, told
from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.training import Training
from ckaudit.lab.training_spec import Recipe, recipe
from tests.lab.small import PICTURES, SMALL, column, made
from tests.lab.trained import SHORT, fork

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
RESUMED = replace(SMALL, stop=8, resume_at=5)


class Notes:
    """A peer that counts forward passes and notes what it is told; it says so in the end."""

    told: ClassVar[list[Any]] = []

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        self.told.append("attached")
        self.weight = next(model.parameters())
        self.before = self.weight.detach().clone()
        self.hook = model.register_forward_hook(lambda *_: None)
        assert not list(folder.iterdir())
        (folder / "notes").touch()

    def after_backward(self, loss: float) -> None:
        self.told.append(loss)
        assert self.weight.grad is not None
        assert torch.equal(self.weight, self.before)

    def after_update(self, loss: float) -> None:
        assert self.told[-1] == loss
        assert not torch.equal(self.weight, self.before)
        self.before = self.weight.detach().clone()

    def finish(self) -> list[Spoken]:
        self.hook.remove()
        self.told.append("detached")
        return [("bad", f"{len(self.told)}")]


class Broken(Notes):
    """One that fails when it is told something."""

    def after_update(self, loss: float) -> None:
        raise ValueError("no such key")


class Rude(Notes):
    """One whose hook stops the training."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        model.register_forward_hook(self.refuse)

    def refuse(self, *_: object) -> None:
        raise RuntimeError("unknown layer")

    def finish(self) -> list[Spoken]:
        return []


def peer(watch: type, name: str = "notes") -> InLoopPeer:
    return InLoopPeer(
        name=name, package=name, reads="in the loop", watch=watch, levels={"bad": "fail"}, means=(("[0-9]", "bad_batch"),)
    )


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Notes, "told", [])
    torch.set_num_threads(1)


def trained(plan: Plan, folder: Path, change: Change, *peers: InLoopPeer) -> Training:
    training = Training(plan, WatchedChange(change, peers, folder / "peers") if peers else change, folder / "run")  # type: ignore[arg-type]
    training.run()
    training.change.finished(folder / "run")
    return training


def same(one: Training, other: Training) -> bool:
    weights, others = one.model.state_dict(), other.model.state_dict()
    return weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)


@pytest.mark.parametrize(
    "plan", [SMALL, RESUMED, PICTURES, replace(SMALL, accumulate=2, stop=6), replace(SMALL, precision="float16", stop=6)]
)
def test_peers_are_told_the_loss_of_every_step_and_change_nothing(plan: Plan, tmp_path: Path) -> None:
    bare = trained(plan, tmp_path / "bare", Change())
    state = torch.get_rng_state()
    watched = trained(plan, tmp_path / "watched", Change(), peer(Notes))
    assert same(bare, watched)
    assert torch.equal(state, torch.get_rng_state())
    assert column(tmp_path / "bare" / "run", "train_loss_raw") == column(tmp_path / "watched" / "run", "train_loss_raw")
    losses = [each for each in Notes.told if isinstance(each, float)]
    assert losses == pytest.approx(list(column(tmp_path / "bare" / "run", "train_loss_raw").values()), rel=1e-5)
    assert not watched.model._forward_hooks


def test_a_model_that_is_built_anew_is_met_anew(tmp_path: Path) -> None:
    trained(RESUMED, tmp_path, Change(), peer(Notes))
    words = [index for index, each in enumerate(Notes.told) if isinstance(each, str)]
    assert [Notes.told[index] for index in words] == ["attached", "detached", "attached", "detached"]
    assert words == [0, 6, 7, 11]  # five steps, then three
    assert told(tmp_path / "peers").found == {"notes": [("bad", "7"), ("bad", "12")]}


def test_a_change_has_its_way_under_the_eyes_of_peers(tmp_path: Path) -> None:
    change = made("nan_hidden", onset=4, strength=2)
    watched = trained(replace(SMALL, stop=8), tmp_path / "watched", change, peer(Notes))
    assert same(watched, trained(replace(SMALL, stop=8), tmp_path / "bare", made("nan_hidden", onset=4, strength=2)))
    assert [step for step, loss in column(tmp_path / "watched" / "run", "train_loss_raw").items() if loss == 0] == [4, 5]


def test_a_peer_that_fails_is_told_no_more_and_others_go_on(tmp_path: Path) -> None:
    trained(RESUMED, tmp_path, Change(), peer(Broken, "broken"), peer(Notes))
    result = told(tmp_path / "peers")
    assert result.errors == {"broken": "ValueError: no such key"}
    assert result.found["broken"] == []
    assert len(result.found["notes"]) == 2


def small(name: str) -> Recipe:
    return replace(recipe(name, 0), plan=SHORT)


def test_a_peer_that_stops_the_training_leaves_it_to_the_others() -> None:
    result = run_training(small("healthy"), [peer(Rude, "rude"), peer(Notes)])
    assert result.errors == {"rude": "it stops the training: RuntimeError: unknown layer"}
    assert len(result.found["notes"]) == 1


UNTIDY = """
import atexit
from pathlib import Path
from types import SimpleNamespace

class Autopsy:
    def __init__(self, model, optimizer):
        atexit.register(Path("report.html").touch)

    def attach(self): ...
    def step(self, loss): ...
    def detach(self): ...

    def get_report(self):
        return SimpleNamespace(insights=[SimpleNamespace(title="Seen", summary=str(Path.cwd()))], findings=[])
"""


BRIEFLY = """
import runpy
from msgspec.structs import replace
from ckaudit.lab import training_spec

whole = training_spec.recipe

def brief(name, seed):
    made = whole(name, seed)
    return replace(made, plan=replace(made.plan, stop=6))

training_spec.recipe = brief
runpy.run_module("benchmarks.peers.train_with_peers", run_name="__main__")
"""


def test_what_a_peer_leaves_behind_is_gone_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "torchmortem.py").write_text(UNTIDY)
    (tmp_path / "torchmortem-1.0.dist-info").mkdir()
    (tmp_path / "torchmortem-1.0.dist-info" / "METADATA").write_text("Name: torchmortem\nVersion: 1.0\n")
    here = tmp_path / "here"
    here.mkdir()
    subprocess.run(
        [sys.executable, "-c", BRIEFLY, "healthy_mlp", "0", "cache"],
        check=True,
        cwd=here,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
    )
    assert [path.name for path in here.rglob("*")] == ["cache", "healthy_mlp.0.peers.json"]
    heard = json.loads((here / "cache" / "healthy_mlp.0.peers.json").read_text())["heard"]["torchmortem"]
    ((_, told),) = heard["found"]
    assert not Path(told.removeprefix("Seen: ")).exists()


def test_a_training_that_stops_by_itself_is_nobodys_fault() -> None:
    class Stops(Change):
        def begin(self, training: Training) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_training(replace(small("healthy"), change=Stops()), [peer(Notes)])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_ranks_are_watched_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckaudit.lab.training.spawn", fork)
    two = small("two_ranks")
    last = two.change.plan(two.plan).last
    assert run_training(two, [peer(Steps, "steps")]).found == {"steps": [("bad", f"{last} steps")]}


class Steps(Notes):
    """One that counts steps; it goes into another process."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        self.steps = 0

    def after_backward(self, loss: float) -> None:
        self.steps += 1

    def after_update(self, loss: float) -> None:
        pass

    def finish(self) -> list[Spoken]:
        return [("bad", f"{self.steps} steps")]


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **holds: object) -> None:
    module = ModuleType(name)
    vars(module).update(holds)
    monkeypatch.setitem(sys.modules, name, module)


def test_torchmortem_is_called_as_its_readme_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called: list[str] = []

    class Autopsy:
        def __init__(self, model: object, *, optimizer: object) -> None:
            called.append(f"{model} {optimizer}")

        attach = staticmethod(lambda: called.append("attach"))
        detach = staticmethod(lambda: called.append("detach"))
        step = staticmethod(lambda *, loss: called.append(f"step {loss}"))

        def get_report(self) -> SimpleNamespace:
            finding = SimpleNamespace(severity=SimpleNamespace(name="WARNING"), title="Stagnant weight norms", summary="2 layers")
            return SimpleNamespace(findings=[finding], insights=[SimpleNamespace(title="Gradient starvation", summary="so")])

    stand_in(monkeypatch, "torchmortem", Autopsy=Autopsy)
    watcher = TORCHMORTEM.watch("model", "optimizer", tmp_path)  # type: ignore[arg-type]
    watcher.after_backward(1.5)
    watcher.after_update(1.5)
    assert watcher.finish() == [("insight", "Gradient starvation: so"), ("warning", "Stagnant weight norms: 2 layers")]
    assert called == ["model optimizer", "attach", "step 1.5", "detach"]


def test_trainscope_is_called_as_its_readme_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called: list[str] = []
    signature = {"fired": ["kurtosis", "loss"], "first_steps": {"loss": 90, "kurtosis": 60}, "explosion_step": None}

    class TrainScope:
        def __init__(self, model: object, optimizer: object, *, config: dict[str, str]) -> None:
            called.append(f"{model} {optimizer} {config['run_dir']}")

        def attach(self) -> "TrainScope":
            return self

        step = staticmethod(lambda loss: called.append(f"step {loss}"))
        detach = staticmethod(lambda: called.append("detach"))

    async def build_run_report(path: Path) -> dict[str, Any]:
        called.append(f"report {path.relative_to(tmp_path)}")
        return {"signal_signature": signature}

    stand_in(monkeypatch, "trainscope", TrainScope=TrainScope)
    stand_in(monkeypatch, "trainscope.core")
    stand_in(monkeypatch, "trainscope.core.config", TrainScopeConfig=dict)
    stand_in(monkeypatch, "trainscope.report", build_run_report=build_run_report)
    watcher = TRAINSCOPE.watch("model", "optimizer", tmp_path)  # type: ignore[arg-type]
    watcher.after_backward(1.5)
    watcher.after_update(1.5)
    assert watcher.finish() == [("signal", "kurtosis crossed at step 60"), ("signal", "loss crossed at step 90")]
    assert called == [f"model optimizer {tmp_path}", "step 1.5", "detach", "report run"]
    signature["explosion_step"] = 95
    assert watcher.finish()[2:] == [("explosion", "Objective explosion at step 95")]


@pytest.mark.parametrize(("peer", "options"), [(TORCH_AUDIT, {}), (TORCH_AUDIT_EVERY_STEP, {"every_n_steps": 1})])
def test_torch_audit_says_each_finding_once_the_gravest_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, peer: InLoopPeer, options: dict[str, int]
) -> None:
    called: list[object] = []

    def finding(severity: str, rule: str, message: str) -> SimpleNamespace:
        return SimpleNamespace(
            severity=SimpleNamespace(value=severity), rule_id=rule, message=message, get_fingerprint=lambda: rule
        )

    found = [
        finding("WARN", "TA102", "norm 120"),
        finding("INFO", "TA103", "zero"),
        finding("WARN", "TA102", "norm 300"),
        finding("ERROR", "TA500", "never called"),
    ]
    auditor = SimpleNamespace(unpatch=lambda: called.append("unpatch"), finish=lambda: SimpleNamespace(findings=found))

    def autopatch(model: object, *, optimizer: object, **more: object) -> SimpleNamespace:
        called.append((model, optimizer, more))
        return auditor

    stand_in(monkeypatch, "torch_audit", autopatch=autopatch)
    watcher = peer.watch("model", "optimizer", tmp_path)  # type: ignore[arg-type]
    watcher.after_backward(1.0)
    watcher.after_update(1.0)
    assert watcher.finish() == [("ERROR", "TA500 never called"), ("WARN", "TA102 norm 120"), ("INFO", "TA103 zero")]
    assert called == [("model", "optimizer", options), "unpatch"]


@pytest.mark.parametrize("real", known(), ids=lambda each: each.name)
@pytest.mark.filterwarnings("ignore")
def test_the_real_ones_change_nothing(real: InLoopPeer, tmp_path: Path) -> None:
    pytest.importorskip(real.package.replace("-", "_"))
    bare = trained(RESUMED, tmp_path / "bare", Change())
    state = torch.get_rng_state()
    assert same(bare, trained(RESUMED, tmp_path / "watched", Change(), real))
    assert torch.equal(state, torch.get_rng_state())
    result = told(tmp_path / "watched" / "peers")
    assert result.errors == {}
    assert all(severity in real.levels for severity, _ in result.found[real.name])


def test_versions_are_of_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_with_peers, "known", lambda: (peer(Notes, "pytest"), peer(Notes, "no-such-package")))
    assert train_with_peers.installed_versions() == {"pytest": pytest.__version__}
