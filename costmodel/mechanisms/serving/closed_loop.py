"""Users who ask again once they are answered: a closed network, counted in iterations.

Decoding is a delay of m iterations, whatever an iteration takes, and prompts are served C tokens an
iteration: mean-value analysis [1] with the residual life of a prompt, up to the rate at which each
iteration is full [2].

[1] Reiser and Lavenberg, Mean-value analysis of closed queuing networks, J. ACM 27, 1980.
[2] Denning and Buzen, Operational analysis of queueing network models, ACM Surveys 10, 1978.

Symbols: those of `replica`, and P requests of a replica in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Real
from nearkv.costmodel.mechanisms.serving.replica import (
    BELOW_ONE,
    LEAST_RATE,
    OF_WAITING,
    IterationTimes,
    Replica,
    Response,
    choice_of,
    pace_of,
    residual_of,
    waiting_line,
)
from nearkv.costmodel.mechanisms.serving.residents import (
    crossing,
    requests_held,
    resident,
)
from nearkv.costmodel.model.estimate import Latency
from nearkv.costmodel.model.workload import Serving, Workload

_LEAST_STEPS = 1e-9
"""Stands for the steps of answers of one token, which their prompts give [1]."""
_FALSI_STEPS = 100
"""Steps of regula falsi that find prompts of an iteration even where their time jumps."""


@dataclass(frozen=True)
class Loop:
    """Users of a replica who ask again once they are answered.

    Users ask again as an iteration ends. Where prompts come before decoding, a prompt therefore
    meets only those of the same iteration, as none comes while decoding pauses. Where all requests
    are alike, a router with several replicas parts users who meet until they are in step: a prompt
    then meets another one only if more than one begins in each iteration. On one replica users who
    began together stay together, as far as an iteration has room for their prompts.

    Attributes:
        work, serving: the requests, and how they are served.
        users: of a replica [1].
        inside: of them in memory, at most [1].
    """

    work: Workload
    serving: Serving
    users: Real
    inside: Real

    @property
    def strangers(self) -> Real:
        """Share of the users in memory that are not the one who asks [1]."""
        return np.maximum(1 - 1 / self.inside, 0.0)

    @property
    def steps(self) -> Real:
        """Tokens after the first, m [1]."""
        return np.maximum(self.work.output - 1, _LEAST_STEPS)

    @property
    def most_starts(self) -> Real:
        """Prompts that begin in an iteration where all decode, or where each is full [1]."""
        return np.minimum(self.inside / self.steps, self.room)

    @property
    def room(self) -> Real:
        """Prompts of a full iteration; infinite where they come before decoding [1]."""
        serving, prompt = self.serving, self.work.prompt
        of_budget = serving.budget / (prompt + self.strangers * self.steps)
        of_chunk = np.maximum(serving.minimum_chunk, 1.0) / prompt
        full = np.where(np.greater(serving.budget, 0), of_budget, of_chunk)
        return np.where(np.greater(serving.chunked, 0), full, np.inf)

    def companions(self, starts: Real, are_alike: Booleans) -> Real:
        """Other prompts that begin in the same iteration as a prompt [1].

        Args:
            starts: prompts that begin in an iteration on average [1].
            are_alike: whether all requests are alike.
        """
        in_step = np.maximum(starts - 1, 0.0)
        by_chance = self.strangers * starts
        kept = np.minimum(by_chance, np.maximum(self.room - 1, 0.0))
        parted = np.where(np.greater(self.serving.replicas, 1), in_step, kept)
        others = np.where(are_alike, np.maximum(parted, in_step), by_chance)
        return np.minimum(others, np.maximum(self.inside - 1, 0.0))

    def respond(self, starts: Real) -> Response:
        """The response in which as many prompts begin in an iteration, x.

        A decoding request meets the mixed iterations of other requests alone. The first quarter of
        the prompts that come at once find their replica between two iterations. The router sends
        the others to replicas with shorter lines, where they wait for the running iteration to end.
        """
        work, serving = self.work, self.serving
        n = starts * self.steps
        are_alike = np.less_equal(work.spread.longest, 1)
        companions = self.companions(starts, are_alike)
        replica = Replica(work, serving, self.strangers * n)
        added = replica.seconds_added(companions)
        own_chunk = np.where(are_alike, 1.0, replica.chance_of_own_chunk)
        pace = pace_of(replica, starts, added, own_chunk, choice_of(replica))
        others = np.maximum(self.inside - 1, 0.0)
        mixed_met = pace.share * np.minimum(others / np.maximum(n, LEAST_RATE), 1.0)
        tpot = replica.plain + (pace.mixed - replica.plain) * mixed_met
        tokens = np.maximum(replica.along_parts(work.outputs) - 1, 1.0)
        filled = replica.over_prompts(replica.prompts / replica.prompt_budget)
        rho = np.minimum(self.strangers * starts * filled, BELOW_ONE)
        queue = np.where(are_alike, 0.0, self.queue(replica, pace, starts, rho))
        in_chunks = queue + replica.behind(companions * work.prompt, added)
        at_once = companions * replica.over_prompts(added) / 2
        wait = np.where(np.greater(serving.chunked, 0), in_chunks, at_once)
        coming = 1 + companions
        sent_away = 1 - np.maximum(1.0, coming / OF_WAITING) / coming
        sent_away = sent_away * np.greater(serving.replicas, 1)
        residual = sent_away * residual_of(replica, pace, n)
        line = waiting_line(replica, pace, rho, wait, residual)
        return Response(
            replica=replica,
            rate=starts / pace.mean,
            pace=pace,
            others=replica.others,
            decoding=(work.output - 1) * tpot,
            latency=Latency(line.mean, tpot),
            line=line,
            tokens=tokens,
            mixed_met=mixed_met + 0.0 * tokens,
            correlation=0.0 * tokens,
        )

    def queue(
        self, replica: Replica, pace: IterationTimes, starts: Real, rho: Real
    ) -> Real:
        """Time in line for prompts of others, as in M/G/1 but counted in iterations [s].

        A prompt fills S = l / C iterations. Prompts of others that come meanwhile fill x S^2 / 2 in
        M/G/1. Here each of P - 1 others brings one prompt at most, at mu = x / P an iteration, so
        they fill (P - 1) (S - (1 - exp(-mu S)) / mu). The running iteration has computed rho / 2 of
        these. An iteration that prompts fill takes the time of all their tokens.

        Args:
            replica, pace: what serves, and its iterations.
            starts: prompts that begin in one, x [1].
            rho: share in which prompts wait [1].
        """
        filled = replica.prompts / replica.prompt_budget
        of_each = starts / self.inside
        of_one_user = filled + np.expm1(-of_each * filled) / of_each
        met = np.maximum(self.inside - 1, 0.0) * replica.over_prompts(of_one_user)
        chance = pace.chance(rho) / np.maximum(rho, LEAST_RATE)
        iterations = np.maximum(chance * met / (pace.choice * (1 - rho)) - rho / 2, 0.0)
        served = replica.over_prompts(replica.service(pace.added))
        return iterations * served / np.maximum(replica.over_prompts(filled), LEAST_RATE)

    def balanced(self) -> Response:
        """The response with as many users present as memory holds, or as there are.

        The others wait for a place. Where prompts come before decoding, an iteration in which
        no request decodes is not run, so x is at least 1 / m: `most_starts` over those inside.
        """
        most = self.most_starts
        of_one = np.minimum(1 / self.inside, 1.0)
        least = np.where(np.greater(self.serving.chunked, 0), LEAST_RATE, of_one)

        def places_left(part: Real) -> Real:
            """Share of the places in memory without a request [1]."""
            response = self.respond(part * most)
            return 1 - response.rate * response.sojourn / self.inside

        part = crossing(places_left, least, 1.0 + 0.0 * self.users, _FALSI_STEPS)
        response = self.respond(part * most)
        ttft = self.users / response.rate - response.decoding
        line = replace(
            response.line, wait=response.line.wait + ttft - response.latency.ttft
        )
        return replace(response, latency=replace(response.latency, ttft=ttft), line=line)


def of_users(work: Workload, serving: Serving, users: Real) -> Response:
    """The response to a closed loop.

    Args:
        work, serving: the requests, and how they are served.
        users: over all replicas [1].
    """
    dp = serving.replicas
    # as many as all fit keep their places when another one waits
    held = np.floor(requests_held(work, serving))
    inside = np.minimum(users, np.maximum(resident(work, serving), held))
    return Loop(work, serving, users / dp, inside / dp).balanced()
