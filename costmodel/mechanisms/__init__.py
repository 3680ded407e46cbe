"""Mechanisms that systems share: offloading, eviction, scoring, paging, head mapping, serving."""
