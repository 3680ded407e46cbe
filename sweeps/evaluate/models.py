"""Rows of the catalogue of models: shapes, parameters, bytes of weights and of the KV cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.chosen import Borrowed, Compressed, Indexed, Windowed
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import llm_from_part
from nearkv.hardware.catalog import load_llm, names
from nearkv.hardware.machine import Role
from nearkv.sweeps.evaluate.provenance import numbers
from nearkv.sweeps.tables.table import Row, Rows, plain

_NATIVE_PRECISION = Role("", "precision", {"weight": 2.0, "kv": 2.0, "activation": 2.0})
"""16 bits, unless the model states its own widths."""
_SHAPE = (
    "layers",
    "hidden",
    "ffn",
    "heads",
    "kv_heads",
    "head_size",
    "experts",
    "active_experts",
)
_HEADS = ("heads", "kv_heads", "head_size")
_CONTEXTS = {"8k": 2.0**13, "64k": 2.0**16, "128k": 2.0**17, "1M": 2.0**20}
_OF_KINDS = ("8k", "128k")


def model_rows() -> Rows:
    """One row per model: its shape, parameters, weights and KV cache of one token."""
    rows: Rows = []
    for name in names("model"):
        part = load_llm(name)
        llm = llm_from_part(part, _NATIVE_PRECISION)
        row: Row = {"model": name}
        row |= {key: int(part.si[key]) for key in _SHAPE}
        row |= _attending_heads(llm)
        row["parameters_e9"] = float(llm.parameters) / 1e9
        row["active_e9"] = float(llm.active_parameters) / 1e9
        row["weights_gb"] = float(llm.weight_bytes) / 1e9
        row["kv_token_b"] = plain(float(kv_per_token(llm)))
        kinds = [f"{kind.layers:g} {name}" for name, kind in llm.layer_types.items()]
        row["layer_kinds"] = ", ".join(kinds)
        rows.append(row)
    return rows


def model_numbers(name: str) -> Rows:
    """Rows of a model: what follows from its numbers, layer types, every number with its source.

    Raises:
        InputError: no such name, or a file that cannot be read.
    """
    part = load_llm(name)
    llm = llm_from_part(part, _NATIVE_PRECISION)
    rows = [*_computed(llm), *_kinds(llm)]
    stated = numbers(part.name, part)
    attending = _attending_heads(llm)
    for row in stated:
        row["note"] = row["note"] or _whose(llm, row["key"])
        if row["key"] in attending:
            own = attending[row["key"]]
            row |= {"value": own, "si": own, "note": "of layers that attend"}
    order = stated[0]
    computed = {"part": part.name, "kind": "computed"}
    return [
        {key: {**computed, **row}.get(key, "") for key in order} for row in rows
    ] + stated


def kv_per_token(llm: LLM) -> Real:
    """KV cache that one token more adds to a long sequence [B]."""
    long = 2.0**40
    return llm.kv_cache_bytes(1, 2 * long) / long - llm.kv_cache_bytes(1, long) / long


def kv_per_token_unlimited(llm: LLM) -> Real:
    """KV cache of one token where an engine keeps all tokens of windowed layers, too [B]."""

    def one_layer(kind: LLM) -> Real:
        unlimited = replace(kind, window=np.inf) if isinstance(kind, Windowed) else kind
        return kv_per_token(unlimited) / kind.layers

    return llm.sum_over_layers(one_layer)


def _computed(llm: LLM) -> Iterator[Row]:
    yield _row("parameters", llm.parameters, 1e9, "1e9", "")
    active, embeddings = llm.active_parameters, llm.embedding_parameters
    yield _row(
        "active parameters", active, 1e9, "1e9", "embeddings and output head included"
    )
    yield _row(
        "active, no embeddings", active - embeddings, 1e9, "1e9", "as many cards count"
    )
    if llm.mtp_layers:
        drafts = "layers that draft tokens, on top of the parameters: --knob mtp=on"
        yield _row("multi-token prediction", llm.mtp_parameters, 1e9, "1e9", drafts)
    yield _row(
        "weights", llm.weight_bytes, 1e9, "GB", "16 bits unless the model states its own"
    )
    token, unlimited = kv_per_token(llm), kv_per_token_unlimited(llm)
    yield _row("kv per token", token, 1, "B", "per further token of a long sequence")
    if unlimited != token:
        kept = "in an engine that keeps all tokens of windowed layers, too"
        yield _row("kv per token, no windows", unlimited, 1, "B", kept)
    states = float(llm.all_state_bytes(1))
    whole = "of one sequence, its states included" if states else ""
    for label, tokens in _CONTEXTS.items():
        cache = llm.kv_cache_bytes(1, tokens) + states
        yield _row(f"kv at {label}", cache, 1e9, "GB", whole)


def _row(key: str, si: Real, size: float, unit: str, note: str) -> Row:
    return {
        "key": key,
        "value": plain(float(si) / size),
        "unit": unit,
        "si": plain(float(si)),
        "note": note,
    }


def _kinds(llm: LLM) -> Iterator[Row]:
    """Rows per layer type: how many, and what all of them keep of a sequence."""
    for name, kind in (llm.layer_types or {"full": llm}).items():
        count = float(kind.layers)
        note = _cache_note(kind)
        if float(kind.experts) > 1:
            note += f", {kind.active_experts:g} of {kind.experts:g} experts"
        yield _row(f"layers: {name}", count, 1, "1", note)
        if not llm.layer_types:
            continue
        for label in _OF_KINDS:
            tokens = _CONTEXTS[label]
            kept = count * float(kind.kv_bytes(1, tokens)) / tokens
            if kept:
                yield _row(f"kv per token at {label}: {name}", kept, 1, "B", "")
        if state := count * float(kind.state_bytes(1)):
            yield _row(f"state: {name}", state, 1, "B", "of one sequence of any length")


def _cache_note(kind: LLM) -> str:
    """Bytes that a layer of one type keeps of a sequence."""
    if isinstance(kind, Recurrent):
        return f"a state of {float(kind.state_bytes(1)):,.0f} B"
    heads = f"{kind.heads:g} heads"
    if isinstance(kind, Compressed):
        rows = f" and a row for every {kind.rate:g} before" if kind.rate else ""
        return f"{heads} attend to the last {kind.window:,.0f} tokens{rows}"
    if isinstance(kind, Borrowed):
        return f"{heads} read the cache of an earlier layer"
    token = f"{float(kind.kv_bytes(1, 1)):,.0f} B per token"
    what = f", {kind.kv_heads:g} of K and V"
    if isinstance(kind, Latent):
        what = " attend to a shared latent"
    if isinstance(kind, Indexed):
        what += f" of {kind.chosen:,.0f} tokens that an indexer chooses"
    if isinstance(kind, Windowed):
        token += f", {kind.window:,.0f} tokens at most"
    return f"{heads}{what}, {token}"


def _whose(llm: LLM, key: str) -> str:
    """Whose number it is, where layer types have different ones."""
    if key not in _SHAPE or not llm.layer_types:
        return ""
    own = {float(getattr(kind, key)) for kind in llm.layer_types.values()}
    frequent = max(llm.layer_types, key=lambda name: float(llm.layer_types[name].layers))
    return f"of {frequent} layers" if key != "layers" and len(own) > 1 else ""


def _attending_heads(llm: LLM) -> dict[str, int]:
    """Heads of the layers that attend, in a model most of whose layers keep a state."""
    kinds = list(llm.layer_types.values())
    attending = [kind for kind in kinds if not isinstance(kind, Recurrent)]
    if not attending or len(attending) == len(kinds):
        return {}
    return {key: int(getattr(attending[0], key)) for key in _HEADS}
