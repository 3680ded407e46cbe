"""KV tiers as docs/reuse.md's table of moves says them, with lists, request by request."""

from __future__ import annotations

import random


def simulate(
    requests: list[list[str]], sizes: list[int], policy: str, admission: str
) -> tuple[list[list[int]], list[int]]:
    """Blocks of each request that each tier had, and blocks written to each tier."""
    lists: list[list[str]] = [[] for _ in sizes]
    times: dict[str, int] = {}
    hits, written = [], [0] * len(sizes)
    for prompt in requests:
        before = [set(tier) for tier in lists]
        counts = [0] * len(sizes)
        source: dict[str, int] = {}
        for block in prompt:
            homes = [i for i, tier in enumerate(before) if block in tier]
            if not homes:
                break
            counts[homes[0]] += 1
            source[block] = homes[0]
        hits.append(counts)
        for block in prompt:
            times[block] = times.get(block, 0) + 1
        dropped: list[str] = []
        for i, size in enumerate(sizes):
            if i == 0 or policy == "inclusive":
                new = list(prompt)
            elif policy == "write-through":
                new = [block for block in prompt if source.get(block, i) >= i]
            elif policy == "victim":
                new = [block for block in prompt if source.get(block) == i] + dropped
            else:
                new = dropped
                nearer = {block for tier in lists[:i] for block in tier}.intersection(prompt)
                lists[i] = [block for block in lists[i] if block not in nearer]
            if i and admission == "second-touch":
                new = [block for block in new if times[block] > 1 or block in before[i]]
            order = list(dict.fromkeys(new + lists[i]))  # the first of each
            lists[i], dropped = order[:size], order[size:]
            written[i] += len(set(lists[i]) - before[i])
    return hits, written


def walks(rng: random.Random, count: int) -> list[list[str]]:
    """Prompts that walk down random trees, a block named by all before it."""
    trees, depth, fan = rng.randint(1, 8), rng.randint(1, 14), rng.randint(1, 4)
    requests = []
    for _ in range(count):
        path = str(min(int(rng.expovariate(0.5)), trees - 1))
        prompt = [path]
        for _ in range(rng.randint(0, depth - 1)):
            path += "abcd"[min(int(rng.expovariate(1.2)), fan - 1)]
            prompt.append(path)
        requests.append(prompt)
    return requests
