"""The best value of a share in which a system's amounts are affine."""
