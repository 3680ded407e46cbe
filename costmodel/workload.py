"""What is asked of a system: so many sequences, a prompt each, so many tokens out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from costmodel.span import Real


@dataclass(frozen=True)
class Workload:
    """A batch of equal requests; every field broadcasts over design points.

    Attributes:
        batch: sequences served together [1].
        prompt: tokens each brings (s) [1].
        output: tokens each generates (n) [1].
        fixed_context: evaluate a decode step at this context instead of the mean [1].
    """

    batch: Real
    prompt: Real
    output: Real
    fixed_context: Real | None = None

    @property
    def context(self) -> Real:
        """Tokens attended to in a decode step [1].

        The n - 1 steps after prefill see s + 1 ... s + n - 1 tokens; their mean is s + n / 2,
        exact for any step that is affine in the context.
        """
        return self.prompt + self.output / 2 if self.fixed_context is None else self.fixed_context

    @property
    def final(self) -> Real:
        """Tokens held when a sequence ends, s + n [1]."""
        return self.prompt + self.output

    def at(self, context: Real) -> Workload:
        """The same work with its decode step seen at one context [1]."""
        return replace(self, fixed_context=context)
