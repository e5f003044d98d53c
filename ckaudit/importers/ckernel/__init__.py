"""What the artifacts of C-Kernel-Engine say of steps and stages."""
