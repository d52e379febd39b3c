"""What Slurm says of a job, and what srun must be told; pure."""
