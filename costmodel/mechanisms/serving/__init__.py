"""Queues of requests served by GPUs, CPUs and DIMM-PIM."""
