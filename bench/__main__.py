"""Run every benchmark in this folder: each module's `main` prints one line a measurement."""

import importlib
import pkgutil

import bench

for module in sorted(m.name for m in pkgutil.iter_modules(bench.__path__) if m.name.startswith("bench_")):
    print(f"# {module.removeprefix('bench_')}", flush=True)
    importlib.import_module(f"bench.{module}").main()
