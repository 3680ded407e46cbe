"""Measurements that pages of the site report, and sweeps that are killed; not in `make check`."""
