"""Trainings that learn from rewards or against an opponent."""

from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.distributions import Categorical
from torch.nn import functional as F  # noqa: N812  its usual name
from torch.optim import Adam, RMSprop

from benchmarks.everyday.data import Batch, source, stream, task_source
from benchmarks.everyday.healthy import healthy, on_stream
from benchmarks.everyday.models import mlp
from benchmarks.everyday.training import Training


def _states(rows: int, drawn: Generator) -> Batch:
    return (torch.randn(rows, 4, generator=drawn),)


@healthy
def policy_gradient() -> Training:
    """REINFORCE with the mean reward as baseline."""
    policy, values = mlp(4, 32, 3, act=nn.Tanh), torch.randn(4, 3, generator=task_source(3))

    def loss(batch: Batch) -> Tensor:
        choice = Categorical(logits=policy(batch[0]))
        action = choice.sample()
        reward = (batch[0] @ values).gather(1, action[:, None])[:, 0]
        advantage = reward - reward.mean()
        return -(choice.log_prob(action) * advantage).mean() - 0.01 * choice.entropy().mean()

    return on_stream(policy, _states, partial(Adam, lr=3e-3), held_out=0, steps=500, loss=loss)


class ActorCritic(nn.Module):
    """A policy and the value of a state, on one trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 64), nn.Tanh())
        self.policy, self.value = nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Map states (B, 4) to the logits of two actions and to values (B,)."""
        features = self.trunk(states)
        return self.policy(features), self.value(features)[:, 0]


@healthy
def actor_critic() -> Training:
    """An actor and a critic on one trunk, with clipped gradients."""
    model, direction = ActorCritic(), torch.tensor([1.0, -1.0, 0.5, 0.0])

    def loss(batch: Batch) -> Tensor:
        logits, value = model(batch[0])
        choice = Categorical(logits=logits)
        action = choice.sample()
        reward = (batch[0] @ direction) * (2 * action - 1) + torch.randn(len(action))
        learnt = -(choice.log_prob(action) * (reward - value).detach()).mean()
        return learnt + 0.5 * F.mse_loss(value, reward) - 0.01 * choice.entropy().mean()

    return on_stream(model, _states, partial(Adam, lr=1e-3), held_out=0, steps=600, loss=loss, clip=0.5)


@healthy
def q_learning() -> Training:
    """Q-learning with a target network that is renewed every 100 steps."""
    network = mlp(4, 64, 2)
    target = deepcopy(network)

    def begin(step: int) -> None:
        if step % 100 == 0:
            target.load_state_dict(network.state_dict())

    def loss(batch: Batch) -> Tensor:
        (states,) = batch
        action = torch.randint(2, (len(states),))
        reward = torch.tanh(states[:, 0] * (2 * action - 1))
        with torch.no_grad():
            later = target(0.9 * states + 0.1 * torch.randn_like(states)).max(1).values
        return F.smooth_l1_loss(network(states).gather(1, action[:, None])[:, 0], reward + 0.9 * later)

    return on_stream(network, _states, partial(Adam, lr=1e-3), held_out=0, steps=800, loss=loss, begin=begin)


def _on_a_line(rows: int, drawn: Generator) -> Batch:
    return (2 + 0.5 * torch.randn(rows, 1, generator=drawn),)


def _on_a_circle(rows: int, drawn: Generator) -> Batch:
    angle = 2 * torch.pi * torch.rand(rows, 1, generator=drawn)
    return (torch.cat([angle.cos(), angle.sin()], 1),)


class AdversarialTraining:
    """A generator and a discriminator that has an optimizer of its own.

    Args:
        width: Numbers of a point.
        optimizer: Makes the optimizer of the discriminator.
    """

    def __init__(self, width: int, optimizer: partial[Any]) -> None:
        self.generator = mlp(4, 32, width)
        self.discriminator = nn.Sequential(nn.Linear(width, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
        self._optimizer = optimizer(self.discriminator.parameters())
        self.made = torch.empty(0)

    def make(self, rows: int = 64) -> Tensor:
        """Return made points, and keep them."""
        self.made = self.generator(torch.randn(rows, 4))
        return self.made

    def generator_loss(self) -> Tensor:
        """Return what the generator is trained on: the discriminator should take what it makes for true."""
        return self._is(1.0, self.make())

    def train_discriminator(self, real: Tensor, made: Tensor) -> None:
        """Take a step of the discriminator."""
        self._optimizer.zero_grad()
        loss = self._is(1.0, real) + self._is(0.0, made.detach())
        loss.backward()
        self._optimizer.step()

    def _is(self, wanted: float, points: Tensor) -> Tensor:
        guess = self.discriminator(points)
        return F.binary_cross_entropy_with_logits(guess, torch.full_like(guess, wanted))


@healthy
def gan() -> Training:
    """A GAN of which the generator is recorded; the discriminator moves first."""
    optimizer = partial(Adam, lr=1e-3, betas=(0.5, 0.9))
    game = AdversarialTraining(1, optimizer)

    def loss(batch: Batch) -> Tensor:
        game.train_discriminator(batch[0], game.make())
        return game.generator_loss()

    batches = stream(_on_a_line, 64, source(1))
    return Training(model=game.generator, optimizer=optimizer, steps=500, batches=batches, loss=loss)


@healthy
def gan_generator_first() -> Training:
    """A GAN of which the generator is recorded, and moves first."""
    optimizer = partial(Adam, lr=2e-4, betas=(0.5, 0.999))
    game, real = AdversarialTraining(2, optimizer), stream(_on_a_circle, 64, source(1))

    def updated(_step: int) -> None:
        game.train_discriminator(next(real)[0], game.made)

    return Training(
        model=game.generator, optimizer=optimizer, steps=800, loss=lambda _batch: game.generator_loss(), updated=updated
    )


@healthy
def wasserstein_critic() -> Training:
    """A Wasserstein GAN of which the critic is recorded; its weights are clamped after each step."""
    optimizer = partial(RMSprop, lr=5e-4)
    game = AdversarialTraining(2, optimizer)
    critic, of_generator = game.discriminator, optimizer(game.generator.parameters())

    def loss(batch: Batch) -> Tensor:
        return critic(game.make().detach()).mean() - critic(batch[0]).mean()

    def updated(step: int) -> None:
        with torch.no_grad():
            for weight in critic.parameters():
                weight.clamp_(-0.05, 0.05)
        if step % 5 == 0:
            of_generator.zero_grad()
            (-critic(game.make()).mean()).backward()
            of_generator.step()

    batches = stream(_on_a_circle, 64, source(1))
    return Training(model=critic, optimizer=optimizer, steps=500, batches=batches, loss=loss, updated=updated)
