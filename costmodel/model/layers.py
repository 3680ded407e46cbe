"""Layer types beside full attention, and sums over the layer types of a model.

A layer type is a model whose layers are all of that type; what it does not override it computes
as any other. A full layer of grouped heads is `LLM` itself.

Symbols: b sequences, s tokens, h hidden, H query heads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Real, Span, pipeline, serial
from nearkv.costmodel.model.chosen import (
    Borrowed,
    Chunked,
    Compressed,
    Selected,
    Sparse,
    Windowed,
)
from nearkv.costmodel.model.latent import Latent, Projected
from nearkv.costmodel.model.llm import LLM

NO_REASONS: Mapping[str, str] = {}


def over_layers(llm: LLM, layer: Callable[[LLM], Span]) -> Span:
    """All layers of a model one after the other, type by type.

    Args:
        llm: the model.
        layer: the span of one layer, given as a model whose layers are all like it.
    """
    if not llm.layer_types:
        return llm.layers * layer(llm)
    spans = {
        name: layer_type.layers * layer(layer_type)
        for name, layer_type in llm.layer_types.items()
    }
    return serial(**spans)


def with_widths(llm: LLM, **widths: Real) -> LLM:
    """A model with elements of other widths, or another skew of the router, in all layer types.

    Args:
        llm: the model.
        widths: bytes of one element, as `kv_width=0.5` [B], or `router_skew` [1].
    """
    if not isinstance(llm, Mixed):
        return replace(llm, **widths)
    layer_types = {
        name: replace(layer_type, **widths) for name, layer_type in llm.layer_types.items()
    }
    return replace(llm, **widths, types_by_name=layer_types)


def with_projected_latents(llm: LLM) -> LLM:
    """A model whose cache holds K and V of heads, projected from latents."""
    if not isinstance(llm, Mixed):
        return llm
    layer_types = {
        name: _projected(layer_type) for name, layer_type in llm.layer_types.items()
    }
    return replace(llm, types_by_name=layer_types)


def _projected(layer_type: LLM) -> LLM:
    return Projected(**vars(layer_type)) if type(layer_type) is Latent else layer_type


def pipelined_layers(llm: LLM, stages: Callable[[LLM], Mapping[str, Span]]) -> Span:
    """All layers through stages, the pipeline filled once, with an average layer.

    Behind it the slowest stage of each layer sets the pace, of any type before it: a sum
    over layer types of the pipeline that all layers would make, times the type's share of them.

    Args:
        llm: the model.
        stages: spans of one layer by stage, given as a model whose layers are all like it.
    """
    if not llm.layer_types:
        return pipeline(llm.layers, **stages(llm))
    spans: dict[str, Span] = {}
    for name, layer_type in llm.layer_types.items():
        share = layer_type.layers / llm.layers
        spans[name] = share * pipeline(llm.layers, **stages(layer_type))
    return serial(**spans)


def not_modelled(
    llm: LLM, attends: Collection[str], reasons: Mapping[str, str] = NO_REASONS
) -> dict[str, Booleans]:
    """Mask of models with layers that a system does not model, by the sentence that says so.

    Args:
        llm: the model.
        attends: attention that the system models, type by type; none where it takes models of full
            attention in layers that are all alike.
        reasons: why not, by type of attention.
    """
    missing: dict[str, Booleans] = {}
    layer_types = [
        (attention_of(layer_type), layer_type) for layer_type in llm.layer_types.values()
    ]
    # in one order, with any models beside it; that layers differ says the least, and is last
    for attention, layer_type in sorted(
        layer_types, key=lambda pair: (pair[0] == "full", pair[0])
    ):
        if attention in attends:
            continue
        alone = layer_type.layers == llm.layers if attention == "full" else False
        present = layer_type.layers > 0
        sentence = f"{_SENTENCES[attention]} not modelled"
        if reason := reasons.get(attention, reasons.get(_CHOOSE.get(attention, ""))):
            sentence += f": {reason}"
        affected = np.logical_and(present, np.logical_not(alone))
        missing[sentence] = np.logical_or(missing.get(sentence, False), affected)
    return missing


def attention_of(llm: LLM) -> str:
    """Attention of the layers of one type: a name of `LAYER_CLASS`."""
    return _NAMES[type(llm)]


@dataclass(frozen=True)
class Mixed(LLM):
    """A model of several layer types, or of one that is not full attention.

    Its own sizes are those of the most frequent type, with heads that divide.

    Attributes:
        types_by_name: the layer types by name.
    """

    types_by_name: Mapping[str, LLM] = field(default_factory=dict)

    @property
    def layer_types(self) -> Mapping[str, LLM]:
        """Kinds of layer by name, each a model of its own `layers`."""
        return self.types_by_name

    def activation_bytes(self, tokens: Real) -> Real:
        """Largest set of activations that any layer holds at once [B]."""
        return self.most_of_a_layer(lambda layer_type: layer_type.activation_bytes(tokens))

    def weight_buffer_bytes(self) -> Real:
        """Weights of the largest layer on the GPU while it streams [B]."""
        return self.most_of_a_layer(lambda layer_type: layer_type.weight_buffer_bytes())


@dataclass(frozen=True)
class Recurrent(LLM):
    """Linear attention or a state space: a state of constant size (Mamba-2, sec. 3 and 6).

    It has no K, V or X; a step reads and writes the full state.

    Attributes:
        mixer_parameters: all matrices of the mixer [1].
        state_size: elements that one sequence keeps in one layer [1].
        state_flops: to update and read the state for one token [FLOP].
    """

    mixer_parameters: Real = 0.0
    state_size: Real = 0.0
    state_flops: Real = 0.0

    @property
    def attention_parameters(self) -> Real:
        """All matrices of the mixer [1]."""
        return self.mixer_parameters

    @property
    def cache_shards(self) -> Real:
        """No limit: a state divides by its channels [1]."""
        return np.inf

    def kv_bytes(self, batch: Real, tokens: Real) -> Real:
        """No bytes [B]."""
        return 0.0

    def x_bytes(self, batch: Real, tokens: Real) -> Real:
        """None: X of old tokens is in the state [B]."""
        return 0.0

    def kv_from_x_flops(self, batch: Real, tokens: Real) -> Real:
        """No FLOPs [FLOP]."""
        return 0.0

    def state_bytes(self, batch: Real) -> Real:
        """The state of every sequence, of any length [B]."""
        return batch * self.state_size * self.activation_width

    def cache_traffic(self, batch: Real, tokens: Real) -> Real:
        """The state, read and written [B]."""
        return 2 * self.state_bytes(batch)

    def activation_bytes(self, tokens: Real) -> Real:
        """Input and output of every projection of the mixer, or the MLP's activations [B]."""
        projected = self.hidden + self.mixer_parameters / self.hidden
        mixer = tokens * projected * self.activation_width
        return np.maximum(mixer, super().activation_bytes(tokens))

    def qkv_flops(self, tokens: Real) -> Real:
        """All projections of the mixer but the output's, which `output_flops` has [FLOP]."""
        return 2 * tokens * self.mixer_parameters - self.output_flops(tokens)

    def attention_flops(self, batch: Real, tokens: Real) -> Real:
        """Update and read the state once [FLOP]."""
        return batch * np.minimum(tokens, 1.0) * self.state_flops

    def eager_scores(self, prompt: Real) -> Real:
        """None [1]."""
        return 0.0

    def eager_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Update and read the state once for each token of a prompt [FLOP]."""
        return self.prefill_attention_flops(batch, prompt)

    def prefill_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Update and read the state once for each token of a prompt [FLOP]."""
        return batch * prompt * self.state_flops


_NAMES: dict[type[LLM], str] = {
    LLM: "full",
    Windowed: "window",
    Chunked: "chunk",
    Latent: "latent",
    Sparse: "sparse",
    Selected: "selected",
    Compressed: "compressed",
    Borrowed: "borrowed",
    Recurrent: "state",
}
_CHOOSE = {"selected": "sparse", "compressed": "sparse"}
"""Layers that read some rows alone: a system lacks both for the same reason."""
_SENTENCES = {
    "full": "layers of several types are",
    "window": "sliding-window attention is",
    "chunk": "attention in chunks is",
    "latent": "multi-head latent attention is",
    "sparse": "attention to tokens that an indexer chooses is",
    "selected": "attention to blocks of tokens that an indexer chooses is",
    "compressed": "attention to compressed rows is",
    "borrowed": "attention to the cache of an earlier layer is",
    "state": "a recurrent state in place of a KV cache is",
}
LAYER_CLASS = {name: layer_type for layer_type, name in _NAMES.items()}
"""Class of layer by the name of its attention."""
