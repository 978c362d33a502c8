"""Train one model of the zoo: `python -m training.train mini-1l --work WORK`.

AdamW with a linear warm-up and a cosine decay, on windows of BOS + 63 tokens. A checkpoint is
written every minute; the windows of a step depend only on (seed, step), so a run that was killed
goes on by itself and ends with the same weights. Writes WORK/models/NAME/model.safetensors.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from longshot.files import save_tensors
from longshot.models.gelu import GeluConfig, GeluTransformer
from training.data import Streams, load_streams
from training.files import DEFAULT_WORK, finished, write_json
from training.loss import mean_cross_entropy
from training.tokenizer import begin_and_end

DEPTHS = {"mini-1l": 1, "mini-2l": 2, "mini-4l": 4}


@dataclass(frozen=True)
class Settings:
    """All that decides the weights, beside the data and the sizes of the network."""

    steps: int = 3600  # 29 million tokens
    windows: int = 128
    peak_rate: float = 6e-3
    final_share: float = 0.02
    warm_up: int = 200
    decay: float = 0.01
    clip: float = 1.0
    seed: int = 0

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if step < self.warm_up:
            return self.peak_rate * (step + 1) / self.warm_up
        passed = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        cosine = 0.5 * (1 + math.cos(math.pi * passed))
        return self.peak_rate * (self.final_share + (1 - self.final_share) * cosine)


Progress = Callable[[int, float], None]


def mini_config(name: str, vocab_size: int) -> GeluConfig:
    """The sizes of a model of the zoo."""
    return GeluConfig(
        layers=DEPTHS[name],
        width=64,
        heads=4,
        head_width=16,
        mlp_width=256,
        context=64,
        vocab_size=vocab_size,
    )


def new_model(config: GeluConfig, seed: int) -> GeluTransformer:
    """The model at step 0: a function of the seed alone."""
    model = GeluTransformer(config)
    model.initialise(torch.Generator().manual_seed(seed))
    return model


def make_optimizer(model: GeluTransformer, settings: Settings) -> torch.optim.AdamW:
    """AdamW that decays matrices only: biases and gains have no reason to be small."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
        fused=True,
    )


def train_step(
    model: GeluTransformer,
    optimizer: torch.optim.AdamW,
    streams: Streams,
    settings: Settings,
    step: int,
) -> float:
    """One step; returns the loss before it, in nats a token."""
    tokens = streams.batch(settings.seed, step, settings.windows, model.config.context)
    for group in optimizer.param_groups:
        group["lr"] = settings.rate(step)
    loss = mean_cross_entropy(
        model.hidden(tokens[:, :-1]).flatten(0, 1),
        model.unembedding,
        model.unembedding_bias,
        tokens[:, 1:].flatten(),
    )
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    optimizer.step()
    return loss.item()


def train(
    config: GeluConfig,
    streams: Streams,
    settings: Settings,
    checkpoint: Path,
    *,
    progress: Progress = lambda step, loss: None,
    seconds: float = 60.0,
    stop_before: int | None = None,
) -> GeluTransformer:
    """The trained model, from `checkpoint` on if there is one; `stop_before` ends early."""
    model = new_model(config, settings.seed)
    optimizer = make_optimizer(model, settings)
    first = 0
    run = {"config": asdict(config), "settings": asdict(settings)}
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        if state["run"] != run:
            raise SystemExit(f"{checkpoint} is of another run: {state['run']}; remove it")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    last = settings.steps if stop_before is None else min(stop_before, settings.steps)
    saved = time.monotonic()
    for step in range(first, last):
        loss = train_step(model, optimizer, streams, settings, step)
        progress(step + 1, loss)
        if time.monotonic() - saved > seconds or step + 1 == last:
            with finished(checkpoint) as temporary:
                torch.save(
                    {
                        "run": run,
                        "step": step + 1,
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                    },
                    temporary,
                )
            saved = time.monotonic()
    return model


class ProgressLines:
    """A line every hundred steps: smoothed loss, speed, time left."""

    def __init__(self, steps: int, tokens_a_step: int) -> None:
        self._steps = steps
        self._tokens = tokens_a_step
        self._recent: list[float] = []
        self._since = time.monotonic()

    def __call__(self, step: int, loss: float) -> None:
        self._recent.append(loss)
        if step % 100 and step != self._steps:
            return
        each = (time.monotonic() - self._since) / len(self._recent)
        print(
            f"step {step}/{self._steps}  loss {sum(self._recent) / len(self._recent):.4f}  "
            f"{self._tokens / each:,.0f} tokens/s  {(self._steps - step) * each / 60:.1f} min left",
            flush=True,
        )
        self._recent, self._since = [], time.monotonic()


def main() -> None:
    """Train the model that was named, unless its weights are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(DEPTHS))
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--rate", type=float, default=Settings.peak_rate)
    parser.add_argument("--trial", help="a name for a run that is only a trial")
    arguments = parser.parse_args()
    work: Path = arguments.work.expanduser()
    folder = work / "models" / (arguments.trial or arguments.name)
    weights = folder / "model.safetensors"
    if weights.exists():
        print(f"{weights} is finished")
        return
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    config = mini_config(arguments.name, tokenizer.get_vocab_size())
    settings = Settings(steps=arguments.steps, peak_rate=arguments.rate)
    streams = load_streams(work, begin_and_end(tokenizer)[0])
    tokens_a_step = settings.windows * (config.context - 1)
    model = train(
        config,
        streams,
        settings,
        folder / "checkpoint.pt",
        progress=ProgressLines(settings.steps, tokens_a_step),
    )
    with finished(weights) as temporary:
        save_tensors(temporary, model.state_dict(), {})
    tokens = settings.steps * tokens_a_step
    write_json(folder / "run.json", {"settings": asdict(settings), "training_tokens": tokens})
    print(json.dumps({"name": arguments.name, "training_tokens": tokens}))


if __name__ == "__main__":
    main()
