"""jaxsif: build, publish and run JAX in Singularity/Apptainer images on Slurm clusters."""

__version__ = "0.1.0"
