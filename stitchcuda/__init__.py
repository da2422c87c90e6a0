"""StitchCUDA: a PyTorch program in, a faster, verified, end-to-end GPU program out."""

__version__ = "0.1.0"
