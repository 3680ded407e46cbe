"""A transformer's shapes: bytes and FLOPs of each sub-layer of one layer.

Fields and results broadcast over design points, so a batch of models is one `LLM` of arrays.

Symbols: b sequences, s tokens of context, t tokens computed now (b in decode, b*s in prefill),
h hidden, H query heads, Hkv KV heads, d head size, g = H / Hkv, E experts, k active experts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import reduce

import numpy as np

from nearkv.costmodel.algebra.span import ByName, Numbers, Real, choose, total
from nearkv.hardware.machine import Role


@dataclass(frozen=True)
class LLM:
    """Shape of a decoder-only transformer and the width of its elements.

    Attributes:
        layers, hidden, ffn, heads, kv_heads, head_size, vocab, positions: sizes [1].
        gated: 1 with a gate matrix in the MLP, else 0.
        tied: 1 where input and output embeddings share weights, else 0.
        experts, active_experts: of an MoE layer; 1 and 1 when dense.
        weight_width, kv_width, activation_width: bytes of one element [B].
        dense_width: of attention and what every token shares, if not `weight_width` [B].
        head_width: of embeddings and output head, if not `weight_width` [B].
        operand_width: of the wider operand of products with quantised weights, if not
            `activation_width` [B].
        native_width: of that operand on GPUs whose units multiply the weights as they are stored
            (MXFP4 on Blackwell), where it differs [B].
        shared_parameters: of one layer beside attention and experts, used by every token:
            shared experts, router, biases [1].
        longest: tokens that the model's positions reach [1].
        kv_projections: matrices that project to K and V: 1 where V is taken from K's [1].
        idle_parameters: held and not read by generating text, as those of a vision tower [1].
        mtp_layers: layers of multi-token prediction, held only where they draft tokens [1].
        router_skew: exponent of Zipf's law by which tokens choose experts, 0 where uniform [1].
    """

    layers: Real
    hidden: Real
    ffn: Real
    heads: Real
    kv_heads: Real
    head_size: Real
    vocab: Real
    positions: Real
    gated: Real
    tied: Real
    experts: Real
    active_experts: Real
    weight_width: Real = 2.0
    kv_width: Real = 2.0
    activation_width: Real = 2.0
    dense_width: Real | None = None
    head_width: Real | None = None
    operand_width: Real | None = None
    native_width: Real | None = None
    shared_parameters: Real = 0.0
    longest: Real = np.inf
    kv_projections: Real = 2.0
    idle_parameters: Real = 0.0
    mtp_layers: Real = 0.0
    router_skew: Real = 0.0

    @property
    def layer_types(self) -> Mapping[str, LLM]:
        """Kinds of layer by name, each a model of its own `layers`; none where all are alike."""
        return {}

    # --- shapes -------------------------------------------------------------------------------

    @property
    def group(self) -> Real:
        """Query heads that share one KV head, g = H / Hkv [1]."""
        return self.heads / self.kv_heads

    @property
    def cache_shards(self) -> Real:
        """Parts that a layer's cache divides into without copies, its KV heads [1]."""
        return self.kv_heads

    @property
    def kv_size(self) -> Real:
        """Elements of K (or V) of one token in one layer, Hkv * d [1]."""
        return self.kv_heads * self.head_size

    @property
    def query_size(self) -> Real:
        """Elements of Q of one token in one layer, H * d [1]."""
        return self.heads * self.head_size

    # --- parameters ---------------------------------------------------------------------------

    @property
    def attention_parameters(self) -> Real:
        """Q, K, V and output matrices of one layer [1]."""
        return self.hidden * (2 * self.query_size + self.kv_projections * self.kv_size)

    @property
    def expert_parameters(self) -> Real:
        """One expert of one layer, or the MLP of a dense layer [1]."""
        return (2 + self.gated) * self.hidden * self.ffn

    @property
    def head_parameters(self) -> Real:
        """Output head, vocab x hidden [1]."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> Real:
        """All matrices and embeddings; biases and norms are left out [1]."""
        held = self.embedding_parameters + self.idle_parameters
        return held + self.sum_over_layers(
            lambda layer_type: layer_type.layer_parameters(layer_type.experts)
        )

    @property
    def mtp_parameters(self) -> Real:
        """Layers of multi-token prediction, and what joins their two inputs: 2 h^2 each [1]."""
        largest = self.most_of_a_layer(
            lambda layer_type: layer_type.layer_parameters(layer_type.experts)
        )
        return self.mtp_layers * (largest + 2 * self.hidden**2)

    @property
    def active_parameters(self) -> Real:
        """Parameters that one token uses, embeddings included [1]."""
        return self.embedding_parameters + self.sum_over_layers(
            lambda layer_type: layer_type.layer_parameters(layer_type.active_experts)
        )

    @property
    def embedding_parameters(self) -> Real:
        """Token and position embeddings and the output head [1]."""
        return (self.vocab * (2 - self.tied) + self.positions) * self.hidden

    def sum_over_layers(self, amount: Callable[[LLM], Real]) -> Real:
        """Sum of an amount over all layers, type by type [of the amount].

        Args:
            amount: of one layer, given as a model whose layers are all like it.
        """
        layer_types = self.layer_types.values() or (self,)
        return total(layer_type.layers * amount(layer_type) for layer_type in layer_types)

    def most_of_a_layer(self, amount: Callable[[LLM], Real]) -> Real:
        """Largest amount over the layer types that the model has [of the amount].

        Args:
            amount: of one layer, given as a model whose layers are all like it; not negative.
        """
        layer_types = self.layer_types.values() or (self,)
        amounts = [
            np.where(layer_type.layers > 0, amount(layer_type), 0.0)
            for layer_type in layer_types
        ]
        return reduce(np.maximum, amounts)[()]

    def layer_parameters(self, experts: Real) -> Real:
        """Parameters of one layer, given how many of its experts count [1]."""
        fixed = self.attention_parameters + self.shared_parameters
        return fixed + self.expert_parameters * experts

    @property
    def is_moe(self) -> Real:
        """1 where the layers have experts, 0 where they are dense [1]."""
        return np.greater(self.experts, 1) * 1.0

    def distinct_experts(self, tokens: Real, beyond: Real = 0.0) -> Real:
        """Expected experts of a layer that any token uses, beyond the most chosen ones [1].

        Tokens choose independently: E (1 - (1 - k/E)^t) where all experts are chosen alike
        (physics: Mixtral 7.92 of 8 at t = 16), else the sum of 1 - (1 - p_r)^t over ranks r.

        Args:
            tokens: t [1].
            beyond: the most chosen experts that do not count; of one, a share may count [1].
        """
        if not np.any(self.router_skew):
            unused_by_one = 1 - self.active_experts / self.experts
            return (self.experts - beyond) * (1 - unused_by_one**tokens)
        sizes, odds = self._router_groups()
        counted = np.clip(np.cumsum(sizes, axis=-1) - _last_axis(beyond), 0.0, sizes)
        unused = (1 - odds) ** _last_axis(tokens)
        distinct: Real = np.sum(counted * (1 - unused), axis=-1)
        return distinct

    def _router_groups(self) -> tuple[Numbers, Numbers]:
        """Experts of like rank: how many, and the mean chance that a token chooses one [1].

        Ranks 2^i to 2^(i+1) - 1 are one group, so that shares of experts bend at few places.
        """
        odds = self.expert_odds
        starts = 2 ** np.arange(np.frexp(odds.shape[-1])[1]) - 1
        sizes = np.add.reduceat((odds > 0) * 1.0, starts, axis=-1)
        return sizes, np.add.reduceat(odds, starts, axis=-1) / np.maximum(sizes, 1.0)

    @property
    def expert_odds(self) -> Numbers:
        """Chance that a token chooses an expert, along a last axis from the most chosen on [1].

        Zipf's law, w_r = r^-skew, for k different experts: those that would be chosen more than
        once are chosen always, and the others share what is left.
        """
        experts, active = _last_axis(self.experts), _last_axis(self.active_experts)
        ranks = np.arange(1.0, np.max(self.experts) + 1)
        weights = np.where(ranks <= experts, ranks ** -_last_axis(self.router_skew), 0.0)
        # weight of an expert and of all that are chosen no more often
        rest = np.cumsum(weights[..., ::-1], axis=-1)[..., ::-1]
        always = (active - ranks + 1) * weights > rest
        free = np.sum(np.where(always, 0.0, weights), axis=-1, keepdims=True)
        left = active - np.sum(always, axis=-1, keepdims=True)
        return np.where(always, 1.0, left * weights / np.maximum(free, 1e-300))

    @property
    def choice_variance(self) -> Real:
        """Variance of the share that an expert has of all choices, times the experts [1].

        0 where all are chosen alike: E sum of (p / k - 1 / E)^2 over E.
        """
        if not np.any(self.router_skew):
            return 0.0
        shares = self.expert_odds / _last_axis(self.active_experts)
        squares: Real = np.sum(shares**2, axis=-1)
        return squares - 1 / self.experts

    # --- bytes of one layer -------------------------------------------------------------------

    @property
    def weight_bytes(self) -> Real:
        """All weights of the model [B]."""
        held = self.embedding_parameters + self.idle_parameters
        embeddings = held * self.embedding_width
        return embeddings + self.sum_over_layers(
            lambda layer_type: layer_type.layer_bytes(layer_type.experts)
        )

    @property
    def head_bytes(self) -> Real:
        """Weights of the output head [B]."""
        return self.head_parameters * self.embedding_width

    @property
    def operands(self) -> tuple[Real, Real]:
        """Bytes of the wider operand of the products of attention, and of the others [B]."""
        stated = self.operand_width
        if stated is None:
            stated = self.activation_width
        # what scales add to 4 or 8 bits does not enter a product
        mlp = np.floor(2 * np.maximum(stated, self.weight_width)) / 2
        kept = self.attention_width > self.weight_width
        return choose(kept, self.activation_width, mlp), mlp

    @property
    def native_operand(self) -> Real:
        """Bytes of the wider operand where units multiply the weights as they are stored [B]."""
        _, mlp = self.operands
        return mlp if self.native_width is None else np.minimum(self.native_width, mlp)

    @property
    def embedding_width(self) -> Real:
        """Bytes of one element of the embeddings and the output head [B]."""
        return self._width(self.head_width)

    @property
    def attention_width(self) -> Real:
        """Bytes of one element of the attention's matrices [B]."""
        return self._width(self.dense_width)

    def _width(self, width: Real | None) -> Real:
        return self.weight_width if width is None else width

    def layer_bytes(self, experts: Real) -> Real:
        """Weights of one layer, given how many of its experts count [B]."""
        fixed = self.attention_parameters + self.shared_parameters
        of_experts = self.expert_parameters * experts * self.weight_width
        return fixed * self.attention_width + of_experts

    def layer_weight_bytes(self, tokens: Real) -> Real:
        """Weights of one layer that a step over these tokens uses; 0 for no token [B]."""
        used = self.distinct_experts(tokens)
        return np.minimum(tokens, 1.0) * self.layer_bytes(used)

    def weight_buffer_bytes(self) -> Real:
        """Weights of one layer on the GPU while it streams: attention and two experts [B]."""
        fixed = self.attention_parameters + self.shared_parameters
        return (fixed + 2 * self.expert_parameters) * self.weight_width

    def kv_bytes(self, batch: Real, tokens: Real) -> Real:
        """K and V of one layer, 2 Hkv d b s elements [B]."""
        return 2 * self.kv_size * batch * self.attended_tokens(tokens) * self.kv_width

    def cache_traffic(self, batch: Real, tokens: Real) -> Real:
        """Bytes of the cache of one layer that a step moves: it reads all K and V [B]."""
        return self.kv_bytes(batch, tokens)

    def kv_cache_bytes(self, batch: Real, tokens: Real) -> Real:
        """K and V of all layers [B]."""
        return self.sum_over_layers(lambda layer_type: layer_type.kv_bytes(batch, tokens))

    def state_bytes(self, batch: Real) -> Real:
        """Recurrent state of one layer, which attention has none of [B]."""
        return 0.0

    def all_state_bytes(self, batch: Real) -> Real:
        """Recurrent states of all layers [B]."""
        return self.sum_over_layers(lambda layer_type: layer_type.state_bytes(batch))

    def x_bytes(self, batch: Real, tokens: Real) -> Real:
        """Input activations X of one layer, h b s elements; KV / X = 2 / g [B]."""
        return self.hidden * batch * self.attended_tokens(tokens) * self.activation_width

    @property
    def x_over_kv(self) -> Real:
        """Bytes of X over those of K and V, of one token; g / 2 at equal widths [1]."""
        x = self.sum_over_layers(lambda kind: kind.x_bytes(1, 1))
        kv = self.kv_cache_bytes(1, 1)
        with np.errstate(divide="ignore", invalid="ignore"):  # states alone keep neither
            ratio: Real = np.divide(x, kv)
        return choose(kv > 0, ratio, np.nan)

    def query_bytes(self, tokens: Real) -> Real:
        """Q of one layer, also the size of the attention output [B]."""
        return self.query_size * tokens * self.activation_width

    def activation_bytes(self, tokens: Real) -> Real:
        """Largest set of activations that one layer holds at once for these tokens [B].

        Attention holds X, Q, K, V and its output; the MLP holds X, its inner activation (both
        halves when gated, of every active expert) and its output.
        """
        attention = self.hidden + 2 * self.query_size + 2 * self.kv_size
        mlp = 2 * self.hidden + (1 + self.gated) * self.ffn * self.active_experts
        return tokens * np.maximum(attention, mlp) * self.activation_width

    def attended_tokens(self, tokens: Real) -> Real:
        """Tokens of a context that a query attends to [1]."""
        return tokens

    # --- FLOPs of one layer -------------------------------------------------------------------

    def qkv_flops(self, tokens: Real) -> Real:
        """Q, K and V projections, two FLOPs a multiply-add [FLOP]."""
        projected = self.query_size + self.kv_projections * self.kv_size
        return 2 * tokens * self.hidden * projected

    def kv_from_x_flops(self, batch: Real, tokens: Real) -> Real:
        """K and V from cached X, 4 b s h Hkv d (HILOS sec. 4.2; its T_GPU prints half) [FLOP]."""
        return 4 * batch * self.attended_tokens(tokens) * self.hidden * self.kv_size

    def attention_flops(self, batch: Real, tokens: Real) -> Real:
        """One query per sequence against a context: Q K^T and scores V, 4 b s H d [FLOP]."""
        return 4 * batch * self.attended_tokens(tokens) * self.query_size

    def prefill_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Causal attention of a prompt, half of the square, 2 b s^2 H d [FLOP]."""
        return 2 * batch * prompt**2 * self.query_size

    def eager_scores(self, prompt: Real) -> Real:
        """Scores that eager attention computes of one prompt, the full square, H s^2 [1]."""
        return self.heads * prompt**2

    def eager_attention_flops(self, batch: Real, prompt: Real) -> Real:
        """Eager attention of a prompt, future tokens too, 4 b s^2 H d [FLOP]."""
        return 2 * (2 * batch * prompt**2 * self.query_size)

    def output_flops(self, tokens: Real) -> Real:
        """Output projection of the attention [FLOP]."""
        return 2 * tokens * self.query_size * self.hidden

    def ffn_flops(self, tokens: Real) -> Real:
        """MLP with the active experts [FLOP]."""
        mlp = self.layer_parameters(self.active_experts) - self.attention_parameters
        return 2 * tokens * mlp

    def linear_flops(self, tokens: Real) -> Real:
        """All matrix products of one layer but the attention itself [FLOP]."""
        return self.qkv_flops(tokens) + self.output_flops(tokens) + self.ffn_flops(tokens)


def _last_axis(number: Real) -> Numbers:
    """A number with a last axis for ranks of experts."""
    return np.asarray(number)[..., np.newaxis]


WIDTH_NAMES = ("dense", "head", "operand", "native")
"""Numbers of the `precision` role that it may lack."""
SHAPE = [field.name for field in fields(LLM) if field.default is MISSING]
"""Fields of a model that have no default."""


def llm_of(shape: ByName, widths: Role) -> LLM:
    """Build a model from sizes by schema key and a platform's element widths.

    Args:
        shape: SI values by schema key; arrays broadcast over design points [1].
        widths: the platform's `precision` role [B]; where `output_head` is 0, the model has no
            words, so that its embeddings and output head are left out.
    """
    sizes = {size: shape[size] for size in SHAPE}
    sizes["vocab"] = sizes["vocab"] * widths.maybe("output_head", 1.0)
    stated = {f"{key}_width": widths[key] for key in WIDTH_NAMES if key in widths}
    return LLM(
        **sizes,
        weight_width=widths.weight,
        kv_width=widths.kv,
        activation_width=widths.activation,
        **stated,
    )
