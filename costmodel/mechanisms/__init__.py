"""What several systems share: offloading, eviction, scoring, paging, head mapping, serving."""
