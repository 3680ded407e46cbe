"""Models of what is priced: LLMs, workloads, resources, capacities; the registry of systems."""
