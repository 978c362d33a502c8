"""Simulated values on which the rules of `longshot.intervals` were chosen, and judged.

None has to do with a language model. A family draws its own sizes, and gives the truth and what the
rule says of one run. The constants were chosen with the families of CHOSEN in sight, all of them;
those of JUDGED were written down, and run, when the constants stood.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64
from numpy import ndarray
from scipy import special

from longshot.intervals import Interval, of_replicates, of_weighted_draws
from longshot.methods import chains
from longshot.numerics import effective_sample_size, log_mean, pareto_k, relative_error

Generator = np.random.Generator
Run = tuple[float, Interval | str]
"""The truth, and an interval or why there is none."""
Family = Callable[[Generator], Run]
Values = Float64[ndarray, " n"]
Law = Callable[..., Values]
"""So many independent values above zero whose mean is 1."""
TRUTH = 1e-4

# --- laws


def lognormal(g: Generator, n: int, sigma: float) -> Values:
    return np.exp(sigma * g.standard_normal(n) - sigma**2 / 2)


def pareto(g: Generator, n: int, k: float) -> Values:
    return (g.pareto(1 / k, n) + 1) * (1 - k)


def frechet(g: Generator, n: int, k: float) -> Values:
    return g.exponential(size=n) ** -k / math.gamma(1 - k)


def log_logistic(g: Generator, n: int, k: float) -> Values:
    u = g.random(n)
    return (u / (1 - u)) ** k * math.sin(math.pi * k) / (math.pi * k)


def weibull(g: Generator, n: int, shape: float) -> Values:
    return g.weibull(shape, n) / math.gamma(1 + 1 / shape)


def mode(g: Generator, n: int, share: float, hold: float) -> Values:
    """A rare heavy mode: a small share of the values holds much of the mean."""
    heavy = g.random(n) < share
    found: Values = np.where(heavy, hold / share, (1 - hold) / (1 - share)) * lognormal(g, n, 0.5)
    return found


def masses(g: Generator, n: int, power: float, tokens: int, hits: int) -> Values:
    """Sums of a few of Zipf's probabilities, each with a chance of its own; many are zero."""
    p = 1 / np.arange(1, tokens + 1) ** power
    p = p[g.choice(tokens, hits, replace=False)]
    chance = g.beta(0.5, 1, hits)
    found: Values = (g.random((n, hits)) < chance) @ p / (chance @ p)
    return found


# --- weighted draws


def plenty(g: Generator) -> tuple[int, float]:
    """How many draws, and the share that hits: anything."""
    return int(2 ** g.uniform(8, 16)), 10 ** g.uniform(-3, 0)


def scarce(g: Generator) -> tuple[int, float]:
    """Few hits are expected, and those that get an interval had luck: h^−1.5 from 0.3 to 1000."""
    n = int(2 ** g.uniform(12, 16))
    return n, 0.3 * (1 - g.random() * (1 - (0.3 / 1000) ** 0.5)) ** -2 / n


def weighted(
    g: Generator, sizes: Callable[[Generator], tuple[int, float]], law: Law, **parameters: float
) -> Run:
    """A mean of weighted hits."""
    n, rate = sizes(g)
    z = np.zeros(n)
    hits = g.binomial(n, rate)
    z[:hits] = law(g, hits, **parameters) * TRUTH / rate
    log_z = torch.from_numpy(z).log()
    k = pareto_k(log_z[log_z > -math.inf])
    size, error = effective_sample_size(log_z), relative_error(log_z)
    return TRUTH, of_weighted_draws(log_mean(log_z), error, size, k)


# --- replicates


def replicated(
    g: Generator, law: Law, counts: tuple[int, ...] = (3, 4, 6, 8, 16, 32), **parameters: float
) -> Run:
    """A mean of some estimates."""
    count = int(g.choice(counts))
    log_x = torch.from_numpy(law(g, count, **parameters) * TRUTH).log()
    return TRUTH, of_replicates(log_mean(log_x), relative_error(log_x), count)


def missing(g: Generator, n: int, sigma: float, share: float) -> Values:
    """Now and then an estimate misses a mode and keeps a tenth to a half."""
    kept = np.where(g.random(n) < share, g.uniform(0.1, 0.5, n), 1.0)
    found: Values = kept / (1 - 0.7 * share) * lognormal(g, n, sigma)
    return found


def finding(g: Generator, n: int, sigma: float, share: float) -> Values:
    """Only some find the mode that holds half of the mean."""
    found: Values = np.where(g.random(n) < share, 0.5 + 0.5 / share, 0.5) * lognormal(g, n, sigma)
    return found


def failing(g: Generator, n: int, sigma: float, share: float) -> Values:
    """Some find nothing."""
    found: Values = np.where(g.random(n) < share, 0, 1 / (1 - share)) * lognormal(g, n, sigma)
    return found


# --- chains


def walked(g: Generator, modes: int) -> Run:
    """MHIS where a score is all there is: p is normal, or two of them; q ∝ p·exp(r·score).

    A chain starts from p, forgets its place within a mode in τ steps, and changes modes at a rate.
    """
    count, steps = int(g.choice([4, 8, 16, 32])), int(2 ** g.uniform(7.5, 11))
    r, keep = 10 ** g.uniform(-0.7, 0.6), math.exp(-(10 ** -g.uniform(0, 2.7)))
    rate, shift = 10 ** g.uniform(-3.5, -1), g.uniform(0.5, 2) * g.choice([-1, 1])
    share, threshold = 0.3 * (modes - 1), special.ndtri(1 - 10 ** -g.uniform(0.5, 4))
    truth = (1 - share) * special.ndtr(-threshold) + share * special.ndtr(shift - threshold)
    tilted = share * math.exp(r * shift)
    tilted /= tilted + 1 - share
    second = g.random(count) < share
    place = g.standard_normal(count)
    start, scores = place + shift * second, np.empty((count, steps))
    for step in range(steps):
        moves = g.random(count) < rate * np.where(second, 1 - tilted, tilted)
        second = second ^ moves
        place = r + keep * (place - r) + math.sqrt(1 - keep**2) * g.standard_normal(count)
        scores[:, step] = place + shift * second
    kept = torch.from_numpy(scores[:, steps // 3 :])
    return float(truth), said_of_chains(-r * kept, kept > threshold, torch.from_numpy(-r * start))


def said_of_chains(
    log_weight: Float64[torch.Tensor, "chain step"],
    hit: Bool[torch.Tensor, "chain step"],
    start: Float64[torch.Tensor, " chain"],
) -> Interval | str:
    reached = chains.starts_reached(log_weight, start)
    worst = chains.disagreement(log_weight, hit)
    return chains.interval(*chains.ratio(log_weight, hit.double()), hit, reached, worst)


# --- proposals that narrow


class Tokens:
    """Ten positions of 150 tokens, and a score with up to three modes and an interaction."""

    def __init__(self, g: Generator) -> None:
        p = 1 / (np.arange(150) + 2.0) ** g.uniform(0.6, 1.2)
        self.p = p / p.sum()
        embedding = g.standard_normal((150, 6))
        self.embedding = embedding - self.p @ embedding
        modes = int(g.integers(1, 4))
        slope = g.standard_normal((modes, 10, 6)) * g.gamma(1, 1, (modes, 10, 1))
        spread = np.einsum("v,jdv->j", self.p, (slope @ self.embedding.T) ** 2) ** 0.5
        self.slope = slope * ((1 - 0.15 * np.arange(modes)) / spread)[:, None, None]
        mixed = g.standard_normal((60, 60))
        self.mixed = (mixed + mixed.T) * g.uniform(0, 0.4) / (4 * math.sqrt(120))
        self.loudness = g.uniform(3, 8)
        plain = np.concatenate([self.score(self.draw(g, 50_000))[0] for _ in range(20)])
        self.threshold = np.quantile(plain, 1 - 10 ** g.uniform(-3, -1.5))
        self.truth = float((plain > self.threshold).mean())

    def draw(self, g: Generator, n: int) -> ndarray:
        return np.minimum(np.searchsorted(self.p.cumsum(), g.random((n, 10))), 149)

    def score(self, x: ndarray) -> tuple[ndarray, ndarray]:
        """With its gradient."""
        e = self.embedding[x]
        linear, mixed = np.einsum("ndw,jdw->nj", e, self.slope), e.reshape(len(x), -1) @ self.mixed
        gradient = self.slope[linear.argmax(1)] + mixed.reshape(e.shape)
        return linear.max(1) + (mixed * e.reshape(len(x), -1)).sum(1) / 2, gradient

    def itgis(self, g: Generator, temperature: float, n: int) -> Run:
        """ITGIS by its formula."""
        batch, log_p = math.isqrt(n), np.log(self.p)
        numerator, denominator = np.zeros((10, 6)), 0.0
        log_z, log_weight = [], []
        for _ in range(n // batch):
            s = self.loudness * numerator / max(denominator, 1) @ self.embedding.T
            log_q = log_p + s / temperature
            log_q -= special.logsumexp(log_q, axis=1, keepdims=True)
            cumulative, u = np.exp(log_q).cumsum(1), g.random((10, batch))
            drawn = [np.searchsorted(c, row) for c, row in zip(cumulative, u, strict=True)]
            x = np.minimum(np.stack(drawn, 1), 149)
            w = (log_p[x] - log_q[np.arange(10), x]).sum(1)
            score, gradient = self.score(x)
            numerator, denominator = gradient.mean(0) + 0.9 * numerator, 1 + 0.9 * denominator
            log_z.append(np.where(score > self.threshold, w, -math.inf))
            log_weight.append(w)
        z, w = (torch.from_numpy(np.concatenate(x)) for x in (log_z, log_weight[1:]))
        size, k = effective_sample_size(z), pareto_k(z[z > -math.inf])
        said = of_weighted_draws(
            log_mean(z), relative_error(z), size, k, log_mean_weight=log_mean(w)
        )
        return self.truth, said


def tilted_runs(
    g: Generator, temperatures: tuple[float, ...], problems: int
) -> dict[float, list[Run]]:
    """Runs of each temperature on some problems, which all temperatures share."""
    found: dict[float, list[Run]] = {temperature: [] for temperature in temperatures}
    for _ in range(problems):
        tokens = Tokens(g)
        for temperature, runs in found.items():
            runs += [tokens.itgis(g, temperature, n) for n in (1024, 1024, 1024, 4096)]
    return found


# --- the families


def equal(g: Generator, n: int) -> Values:
    return np.ones(n)


def gamma(g: Generator, n: int, shape: float) -> Values:
    return g.gamma(shape, 1 / shape, n)


def inverse_gaussian(g: Generator, n: int, shape: float) -> Values:
    return g.wald(1, shape, n)


CHOSEN: dict[str, Family] = {
    "draws: equal": partial(weighted, sizes=plenty, law=equal),
    "draws: lognormal 1": partial(weighted, sizes=plenty, law=lognormal, sigma=1),
    "draws: lognormal 2": partial(weighted, sizes=plenty, law=lognormal, sigma=2),
    "draws: Pareto .5": partial(weighted, sizes=plenty, law=pareto, k=0.5),
    "draws: gamma .3": partial(weighted, sizes=plenty, law=gamma, shape=0.3),
    "draws: a tenth holds half": partial(weighted, sizes=plenty, law=mode, share=0.1, hold=0.5),
    "draws: masses, 6 of 500": partial(
        weighted, sizes=plenty, law=masses, power=1, tokens=500, hits=6
    ),
    "few draws: equal": partial(weighted, sizes=scarce, law=equal),
    "few draws: lognormal 2": partial(weighted, sizes=scarce, law=lognormal, sigma=2),
    "few draws: masses, 6 of 500": partial(
        weighted, sizes=scarce, law=masses, power=1, tokens=500, hits=6
    ),
    "replicates: lognormal .5": partial(replicated, law=lognormal, sigma=0.5),
    "replicates: lognormal 1.2": partial(replicated, law=lognormal, sigma=1.2),
    "replicates: a fifth misses a mode": partial(replicated, law=missing, sigma=0.6, share=0.2),
    "replicates: a fifth finds nothing": partial(replicated, law=failing, sigma=0.5, share=0.2),
    "replicates: gamma .7": partial(replicated, law=gamma, shape=0.7),
    "chains: one mode": partial(walked, modes=1),
    "draws: lognormal .5": partial(weighted, sizes=plenty, law=lognormal, sigma=0.5),
    "draws: lognormal 1.5": partial(weighted, sizes=plenty, law=lognormal, sigma=1.5),
    "draws: lognormal 2.5": partial(weighted, sizes=plenty, law=lognormal, sigma=2.5),
    "draws: Pareto .3": partial(weighted, sizes=plenty, law=pareto, k=0.3),
    "draws: Pareto .7": partial(weighted, sizes=plenty, law=pareto, k=0.7),
    "draws: Weibull .5": partial(weighted, sizes=plenty, law=weibull, shape=0.5),
    "draws: masses, 3 of 300": partial(
        weighted, sizes=plenty, law=masses, power=0.7, tokens=300, hits=3
    ),
    "draws: 3% hold half": partial(weighted, sizes=plenty, law=mode, share=0.03, hold=0.5),
    "draws: 1% hold a fifth": partial(weighted, sizes=plenty, law=mode, share=0.01, hold=0.2),
    "draws: 1% hold half": partial(weighted, sizes=plenty, law=mode, share=0.01, hold=0.5),
    "few draws: lognormal 1": partial(weighted, sizes=scarce, law=lognormal, sigma=1),
    "few draws: Pareto .5": partial(weighted, sizes=scarce, law=pareto, k=0.5),
    "replicates: lognormal .2": partial(replicated, law=lognormal, sigma=0.2),
    "replicates: lognormal .8": partial(replicated, law=lognormal, sigma=0.8),
    "replicates: a tenth misses a mode": partial(replicated, law=missing, sigma=1, share=0.1),
    "replicates: a third finds a mode": partial(replicated, law=finding, sigma=0.6, share=0.3),
    "replicates: two fifths find nothing": partial(replicated, law=failing, sigma=0.8, share=0.4),
    "replicates: inverse Gaussian 1": partial(replicated, law=inverse_gaussian, shape=1),
    "chains: two modes": partial(walked, modes=2),
}
POPULATIONS: dict[str, dict[str, Any]] = {
    "lognormal .3": {"law": lognormal, "sigma": 0.3},
    "lognormal 1": {"law": lognormal, "sigma": 1},
    "lognormal 1.5": {"law": lognormal, "sigma": 1.5},
    "a quarter misses a mode": {"law": missing, "sigma": 0.3, "share": 0.25},
    "a quarter misses a mode, noisily": {"law": missing, "sigma": 0.8, "share": 0.25},
}
"""Few independent populations of one run: what splitting averages."""
JUDGED: dict[str, Family] = {
    "draws: Fréchet .6": partial(weighted, sizes=plenty, law=frechet, k=0.6),
    "draws: log-logistic .4": partial(weighted, sizes=plenty, law=log_logistic, k=0.4),
    "draws: inverse Gaussian .3": partial(weighted, sizes=plenty, law=inverse_gaussian, shape=0.3),
    "few draws: inverse Gaussian .3": partial(
        weighted, sizes=scarce, law=inverse_gaussian, shape=0.3
    ),
    "few draws: masses, 12 of 1000": partial(
        weighted, sizes=scarce, law=masses, power=1.3, tokens=1000, hits=12
    ),
    "draws: gamma .1": partial(weighted, sizes=plenty, law=gamma, shape=0.1),
    "draws: a fifth holds nine tenths": partial(
        weighted, sizes=plenty, law=mode, share=0.2, hold=0.9
    ),
    "few draws: Fréchet .4": partial(weighted, sizes=scarce, law=frechet, k=0.4),
    "few draws: Weibull .7": partial(weighted, sizes=scarce, law=weibull, shape=0.7),
    "few draws: 3% hold a third": partial(weighted, sizes=scarce, law=mode, share=0.03, hold=1 / 3),
    "replicates: Weibull .8": partial(replicated, law=weibull, shape=0.8),
    "replicates: Fréchet .3": partial(replicated, law=frechet, k=0.3),
    "replicates: log-logistic .4": partial(replicated, law=log_logistic, k=0.4),
    "replicates: three fifths find a mode": partial(replicated, law=finding, sigma=0.4, share=0.6),
    **{
        f"{count} replicates: {what}": partial(replicated, counts=(count,), **of)
        for count in (4, 8)
        for what, of in POPULATIONS.items()
    },
}
HARD = ("draws: 1% hold half",)
"""Out of reach of any rule: with a hundred hits the mode is missing from one run in three."""
TEMPERATURES = (0.6, 1.0, 1.7, 3.0, 5.0)


def simulate(family: Family, runs: int, seed: int) -> list[Run]:
    generator = np.random.default_rng(seed)
    return [family(generator) for _ in range(runs)]


def counts(runs: list[Run]) -> tuple[int, int, int]:
    """How many intervals are given, how many of these hold the truth, how many lie below it."""
    given = [(truth, found) for truth, found in runs if not isinstance(found, str)]
    held = sum(low <= truth <= high for truth, (low, high) in given)
    return len(given), held, sum(high < truth for truth, (_, high) in given)
