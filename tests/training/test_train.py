"""A run that is killed and resumed ends with the same weights as one that is not."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from longshot.models.gelu import GeluConfig
from training import loss
from training.data import Streams, heldout_windows
from training.evaluate import BLOCK, Mean, sample, window_losses
from training.train import Settings, new_model, train

CONFIG = GeluConfig(
    layers=2, width=8, heads=2, head_width=4, mlp_width=16, context=8, vocab_size=32
)
SETTINGS = Settings(steps=12, windows=6, warm_up=3, peak_rate=0.02)


@pytest.fixture
def streams() -> Streams:
    rng = np.random.default_rng(0)
    steps = rng.integers(1, 3, size=(2, 500))
    walks = (3 + np.cumsum(steps, axis=1) % 29).astype(np.uint16)
    return Streams((walks[0], walks[1]), (0.7, 0.3), begin=1)


def test_resumed_equals_uninterrupted(streams: Streams, tmp_path: Path) -> None:
    whole = train(CONFIG, streams, SETTINGS, tmp_path / "whole.pt").state_dict()
    for stop in (5, 6, None):
        resumed = train(CONFIG, streams, SETTINGS, tmp_path / "parts.pt", stop_before=stop)
    for name, tensor in resumed.state_dict().items():
        assert torch.equal(tensor, whole[name]), name


def test_resuming_without_the_optimizer_would_be_seen(streams: Streams, tmp_path: Path) -> None:
    whole = train(CONFIG, streams, SETTINGS, tmp_path / "whole.pt").state_dict()
    train(CONFIG, streams, SETTINGS, tmp_path / "parts.pt", stop_before=5)
    state = torch.load(tmp_path / "parts.pt", weights_only=True)
    state["optimizer"]["state"] = {}
    torch.save(state, tmp_path / "parts.pt")
    resumed = train(CONFIG, streams, SETTINGS, tmp_path / "parts.pt").state_dict()
    assert not torch.equal(resumed["embedding"], whole["embedding"])


def test_a_checkpoint_of_other_settings_is_refused(streams: Streams, tmp_path: Path) -> None:
    train(CONFIG, streams, SETTINGS, tmp_path / "c.pt", stop_before=1)
    with pytest.raises(SystemExit, match="another run"):
        train(CONFIG, streams, Settings(steps=13), tmp_path / "c.pt")


def test_training_learns(streams: Streams, tmp_path: Path) -> None:
    losses: list[float] = []
    train(
        CONFIG,
        streams,
        Settings(steps=150, windows=16, warm_up=10, peak_rate=0.02),
        tmp_path / "c.pt",
        progress=lambda step, value: losses.append(value),
    )
    assert np.mean(losses[:5]) > 3.0
    assert np.mean(losses[-5:]) < 2.0


def test_first_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = new_model(CONFIG, seed=3).state_dict()
    torch.manual_seed(2)
    second = new_model(CONFIG, seed=3).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_rates_rise_then_fall_to_the_final_share() -> None:
    rates = [SETTINGS.rate(step) for step in range(SETTINGS.steps + 1)]
    assert max(rates) == rates[SETTINGS.warm_up - 1] == SETTINGS.peak_rate
    assert rates[-1] == pytest.approx(SETTINGS.peak_rate * SETTINGS.final_share)
    assert rates[SETTINGS.warm_up :] == sorted(rates[SETTINGS.warm_up :], reverse=True)


def test_windows_begin_and_follow_the_stream(streams: Streams) -> None:
    batch = streams.batch(seed=0, step=4, windows=5, context=8)
    assert batch.shape == (5, 8)
    assert (batch[:, 0] == 1).all()
    assert torch.equal(batch, streams.batch(0, 4, 5, 8))
    assert not torch.equal(batch, streams.batch(0, 5, 5, 8))
    runs = {tuple(s[i : i + 7].tolist()) for s in streams.streams for i in range(s.size - 6)}
    assert {tuple(row[1:].tolist()) for row in batch} <= runs


def test_blockwise_loss_has_torchs_value_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "ROWS", 4)
    generator = torch.Generator().manual_seed(0)
    hidden, unembedding, bias = inputs = [
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((10, 3), (3, 7), (7,))
    ]
    targets = torch.randint(0, 7, (10,), generator=generator)
    ours = loss.mean_cross_entropy(hidden, unembedding, bias, targets)
    theirs = cross_entropy(hidden @ unembedding + bias, targets)
    torch.testing.assert_close(ours, theirs)
    gradients = torch.autograd.grad(2 * ours, inputs)
    torch.testing.assert_close(gradients, torch.autograd.grad(2 * theirs, inputs))


def test_evaluation_of_an_untrained_model(streams: Streams) -> None:
    model = new_model(CONFIG, seed=0)
    windows = heldout_windows(streams.streams[0], begin=1, context=8, most=20)
    assert windows.shape == (20, 8)
    assert (windows[:, 0] == 1).all()
    losses = window_losses(model, windows)
    assert losses.shape == (20,)
    assert 2.0 < losses.mean() < 6.0
    drawn = sample(model, [1, 5], end=0, seed=7)
    assert drawn == sample(model, [1, 5], end=0, seed=7)
    assert len(drawn) <= 6


def test_errors_see_that_neighbouring_windows_are_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randn(200, generator=generator, dtype=torch.float64)
    alike = Mean.of(blocks.repeat_interleave(BLOCK))
    assert alike.value == pytest.approx(blocks.mean().item())
    assert alike.error == pytest.approx(1 / 200**0.5, rel=0.2)
    alone = Mean.of(torch.randn(200 * BLOCK, generator=generator, dtype=torch.float64))
    assert alone.error == pytest.approx(1 / (200 * BLOCK) ** 0.5, rel=0.2)
