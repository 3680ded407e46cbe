"""Machines that can be built under a budget: all of them, the best one, and the proof."""
