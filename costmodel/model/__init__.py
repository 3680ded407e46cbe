"""What is priced: LLMs, workloads, resources, capacities; the registry of systems."""
