"""Evaluate here, in processes or on a Dask cluster; results come in order whoever evaluates."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

from nearkv.hardware.errors import InputError
from nearkv.sweeps.jobs.interrupts import listening
from nearkv.sweeps.jobs.memory import keep_freed_memory

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Results = Generator[tuple[Item, Answer], None, None]

MOST_JOBS = 256
"""Processes that one machine may be asked for."""


@dataclass(frozen=True)
class Workers:
    """Who evaluates.

    Attributes:
        jobs: processes on this machine; one is this process itself.
        scheduler: address of a Dask scheduler, in place of processes.

    Raises:
        InputError: too few or too many, both kinds at once, or no address.
    """

    jobs: int = 1
    scheduler: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.jobs <= MOST_JOBS:
            raise InputError(
                f"--jobs {self.jobs}: must be 1 or more, and at most {MOST_JOBS}"
            )
        if self.jobs > 1 and self.scheduler:
            raise InputError("--jobs and --scheduler each say who evaluates; choose one")
        if self.scheduler:
            from nearkv.sweeps.jobs.cluster import check_address

            check_address(self.scheduler)

    def run(
        self, task: Callable[[Item], Answer], items: Iterator[Item]
    ) -> Results[Item, Answer]:
        """Do a task on every item and yield the results in the order of the items.

        Only a few items are under way at a time, so neither side holds more than that in memory.

        Args:
            task: must pickle.
            items: consumed as workers become free.

        Raises:
            InputError: there is no such cluster, or workers die.
        """
        keep_freed_memory()
        if self.scheduler:
            from nearkv.sweeps.jobs.cluster import on_cluster

            yield from on_cluster(task, items, self.scheduler)
        elif self.jobs > 1:
            from nearkv.sweeps.jobs.processes import in_processes

            yield from in_processes(task, items, self.jobs)
        else:
            for item in items:
                with listening():
                    answer = task(item)
                yield item, answer
