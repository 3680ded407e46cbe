"""Processes, clusters, interrupts, memory and progress of long work."""
