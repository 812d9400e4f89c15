"""Words and pure maths. Knows torch and numpy, nothing else."""
