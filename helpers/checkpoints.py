"""Runs on disk: saving, rotating, and going on from exactly where a run stood, with Orbax.

Orbax writes the arrays, whole or not at all; this module says which ones, which are kept, and that
nobody writes into a used directory by accident. The code of a run (loss, optimizer) is not saved.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from helpers.trainer import Callback, Report, Run, weights
from helpers.trees import Tree

RUN, WEIGHTS = "run", "weights"
"""The two things that a checkpoint may hold: all of a run, or the weights to evaluate."""


def open_checkpoints(
    directory: str | Path,
    *,
    resume: bool = False,
    keep: int = 2,
    best: str | None = None,
    wait: bool = False,
) -> ocp.CheckpointManager:
    """A manager for the checkpoints of one run. Close it (`with`): it waits for the last write.

    Args:
        resume: whether the directory may hold checkpoints already.
        keep: how many of the latest are kept. The latest is never deleted.
        best: name of a metric; the checkpoint where it is lowest is kept as well.
        wait: whether saving returns when all is on disk. Otherwise it returns when the numbers are
            out of the run's buffers, and a thread writes them.

    Raises:
        FileExistsError: the directory holds checkpoints and `resume` is false.
    """
    policies = ocp.checkpoint_managers
    kept: list[Any] = [policies.LatestN(n=keep)]
    if best is not None:
        kept.append(policies.BestN(get_metric_fn=lambda metrics: metrics[best], reverse=True, n=1))
    options = ocp.CheckpointManagerOptions(
        preservation_policy=policies.AnyPreservationPolicy(kept),
        enable_async_checkpointing=not wait,
    )
    manager = ocp.CheckpointManager(Path(directory).absolute(), options=options)
    if manager.latest_step() is not None and not resume:
        step = manager.latest_step()
        manager.close()
        raise FileExistsError(
            f"{Path(directory).name} holds a run up to step {step}: "
            "pass resume=True to go on from there, or another directory"
        )
    return manager


def save(
    manager: ocp.CheckpointManager,
    run: Run,
    step: int,
    *,
    weights_only: bool = False,
    metrics: dict[str, float] | None = None,
) -> None:
    """Saves a run under its step. weights_only: a third of Adam's size, and no way to go on."""
    item = {WEIGHTS: weights(run)} if weights_only else {RUN: run}
    args = {name: ocp.args.StandardSave(tree) for name, tree in item.items()}
    manager.save(step, args=ocp.args.Composite(**args), metrics=metrics, force=True)


def restore(manager: ocp.CheckpointManager, like: Run, step: int | None = None) -> Run:
    """A saved run, bit for bit; the latest, unless a step is given.

    Args:
        like: a run that was started in the same way. Its structure, dtypes, devices and its
            optimizer are used, its numbers are not.

    Raises:
        FileNotFoundError: there is none, or it holds weights only.
    """
    return _restored(manager, RUN, like, step)


def restore_weights(manager: ocp.CheckpointManager, like: Tree, step: int | None = None) -> Tree:
    """Weights that were saved with `weights_only`. like: params of the same form."""
    return _restored(manager, WEIGHTS, like, step)


def _restored(manager: ocp.CheckpointManager, item: str, like: Tree, step: int | None) -> Tree:
    step = manager.latest_step() if step is None else step
    if step is None or step not in manager.all_steps():
        raise FileNotFoundError(f"no checkpoint of step {step}: there are {manager.all_steps()}")
    if not (Path(str(manager.directory)) / str(step) / item).exists():
        other = WEIGHTS if item == RUN else RUN
        raise FileNotFoundError(f"step {step} was saved as {other} only, it holds no {item}")
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, jax.tree.map(jnp.asarray, like))
    args = ocp.args.Composite(**{item: ocp.args.StandardRestore(target)})
    return manager.restore(step, args=args)[item]


def saving(
    manager: ocp.CheckpointManager, *, weights_only: bool = False, metric: str | None = None
) -> Callback:
    """A callback that saves, with a metric out of the logs if one is named. Wrap it in `every`."""

    def write(report: Report) -> None:
        metrics = {metric: float(report.logs[metric])} if metric else None
        save(manager, report.run, report.step, weights_only=weights_only, metrics=metrics)

    return write
