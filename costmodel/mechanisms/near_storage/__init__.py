"""Attention, eviction and caches on or beside computational storage."""
