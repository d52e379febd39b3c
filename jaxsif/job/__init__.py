"""Slurm's description of a job, and the options of srun; pure."""
