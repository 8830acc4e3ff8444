"""Chapter 08 · Kauldron: the cases that learners don't see.

Other numbers, other names and other nests, in the public shapes, so that a right answer compiles
next to nothing for them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from helpers.exercise import Case
from helpers.exercises.kauldron_tour import (
    Expecting,
    Focal,
    FollowingConfig,
    KeyPath,
    MergedSpread,
    Overrides,
    check_steps,
    sample_cfg,
    sample_context,
    scored,
)


class HiddenFollowingConfig(FollowingConfig):
    """Another step count, set last."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        total = 100 + 2 * int(rng.integers(60, 90))
        peak = float(np.round(rng.uniform(0.3, 0.9), 2))
        edits = [["warmup", 0.58], ["peak", peak], ["num_train_steps", total]]
        about = ["follows", "optimizer", "fresh"]
        yield Case("a longer warm-up", edits, check_steps(total, 0.58), False, about=about)


class HiddenFocal(Focal):
    """Another gamma that is no integer."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("another gamma", *scored(rng, 150.0), 0.25, about=["value", "slope"])


class HiddenMergedSpread(MergedSpread):
    """Other batches, far from zero and with unequal masks."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        values = -6e3 + rng.uniform(-2, 2, (4, 8))
        mask = np.zeros((4, 8), np.float32)
        for row, chosen in enumerate((5, 0, 8, 2)):
            mask[row, rng.permutation(8)[:chosen]] = 1
        rubbish = np.where(mask > 0, values, np.inf)
        about = ["offset", "merged"]
        yield Case("masked, and far from zero", rubbish.astype(np.float32), mask, about=about)


class HiddenKeyPath(KeyPath):
    """Other names and places."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        context, (first, _), _ = sample_context(rng)
        batch, aux = context["batch"], context["aux"]
        name, inside = f"layer {int(rng.integers(10, 99))}.a]b", int(rng.integers(3, 99))
        aux[name] = [[1], [2, inside]]
        context["t"] = [inside]
        there = {
            "t[0]": inside,
            f"aux['{name}'][-1][1]": inside,
            f'aux["{name}"][0][0]': 1,
            "params.layers[-2].bias": first["bias"],
            "aux.best.score": None,
            "batch.image[-1]": batch["image"][-1],
        }
        yield Expecting("what is there", context, there, about=["value"])
        context = context | {"pop": inside}
        shadows = {"pop": inside, "batch.items[1]": batch["items"][1]}
        yield Expecting("methods", context, shadows, about=["shadow"])
        missing = {
            "aux.pop": ("pop", *aux),
            "params.layers[-3].bias": ("-3", "2"),
            "params.layer": ("layer", "layers", "head.bias", "scale"),
            "batch.image[7]": ("7", "3"),
            "bach": ("bach", *context),
        }
        yield Expecting("what is not there", context, missing, about=["error", "message"])
        broken = [".step", "step.", "params.layers[0", "params.layers]0[", "params.layers[len]"]
        broken += ["batch.image[0+1]", "step step", "params.layers[]"]
        yield Expecting("what is no path", context, dict.fromkeys(broken), about=["syntax"])


class HiddenOverrides(Overrides):
    """Other fields."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        steps, cfg = int(rng.integers(1001, 9999)), sample_cfg(rng)
        tries: dict[str, Any] = {
            f"steps={steps}, model.bias=False, layers[0].act=x=1": [
                (("steps",), steps),
                (("model", "bias"), False),
                (("layers", 0, "act"), "x=1"),
            ],
            "optimizer.clip=None": [(("optimizer", "clip"), None)],
            "model.sizes[1]=9": [(("model", "sizes", 1), 9)],
            "name=": [(("name",), "")],
        }
        yield Expecting("what is there", cfg, tries, about=["value", "apart"])
        refused = ["steps=1e3", "optimizer.peak=None", "optimizer.peak=True", "model.sizes=3"]
        refused += ["steps=__import__('os').getpid()"]
        tries = {
            "optimizer.peak=-2": [(("optimizer", "peak"), -2.0)],
            "name=True": [(("name",), "True")],
        }
        yield Expecting("types", cfg, tries | dict.fromkeys(refused, "TypeError"), about=["types"])
        tries = {
            "optimiser.peak=1": ("optimiser.peak", *cfg),
            "layers[-3].width=1": ("layers[-3].width",),
            "model.sizes[2]=1": ("model.sizes[2]",),
            "steps[0]=1": ("steps[0]",),
        }
        yield Expecting("typing errors", cfg, tries, about=["unknown", "apart"])


HIDDEN = [
    HiddenFollowingConfig,
    HiddenFocal,
    HiddenMergedSpread,
    HiddenKeyPath,
    HiddenOverrides,
]
