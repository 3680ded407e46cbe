"""What several systems share: offloading, writeback, eviction, scoring, paging, head mapping, serving."""
