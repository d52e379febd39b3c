"""Check that a new job requests the GPUs that its image is for."""

from __future__ import annotations

from collections.abc import Sequence

from jaxsif.errors import HostError, Notify
from jaxsif.plan.plan import Plan, given_variables

_OPTIONS = ("--gpus", "--gres", "--tres-per-task", "-G")  # of srun and sbatch
_VARIABLES = (
    *("SLURM_GPUS", "SLURM_GRES", "SLURM_TRES_PER_TASK"),
    *("SBATCH_GPUS", "SBATCH_GRES"),
)


def note_missing_gpus(plan: Plan, sbatch_args: Sequence[str], notify: Notify) -> None:
    """Print a note if nothing requests GPUs for a new job, although the image is for CUDA."""
    if _asks_for_gpus(plan, sbatch_args) or plan.container is None:
        return
    from jaxsif.images.labels import read_labels  # 2 ms, and only before a job without GPUs

    try:
        flavour = read_labels(plan.container.image).get("io.jaxsif.flavour", "")
    except (OSError, HostError):
        return  # the job needs no labels
    if flavour.startswith("cuda"):
        notify(
            "the job gets no GPUs, because nothing requests any:"
            " pass --gpus-per-node=N, or --env JAX_PLATFORMS=cpu to silence this"
        )


def _asks_for_gpus(plan: Plan, sbatch_args: Sequence[str]) -> bool:
    """Return whether an option or variable requests GPUs, or sets another platform for JAX."""
    options, environ = plan.options, plan.host.environ
    flags = (*(option.flag for option in options.srun_arguments), *sbatch_args)
    words = [word for word in flags if word.startswith(_OPTIONS)]
    names = [name for name in environ if name.startswith(_VARIABLES)]
    platforms = {**environ, **given_variables(plan)}.get("JAX_PLATFORMS")
    return any((options.gpus_per_node, options.gpus_per_task, words, names, platforms))
