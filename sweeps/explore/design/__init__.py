"""Machines that can be built under a budget: all of them tried, and the best one."""
