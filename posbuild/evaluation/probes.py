"""What an encoding does by itself: properties of the untrained maths, and of its tables as trained.

The untrained probes run on the CPU in float64, on a small model with the run's own encoding and width. Parameters that
start at zero are drawn at random there, the model's output layers among them: at zero every encoding looks like none,
and every model like every other. No probe asks which scheme it holds.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from posbuild import registry
from posbuild.attention import Pattern, exact
from posbuild.bias import Positional
from posbuild.data.vocabulary import BYTES
from posbuild.declaration import Options
from posbuild.encodings.base import Encoding
from posbuild.errors import ConfigError
from posbuild.evaluation.losses import evaluating
from posbuild.model import Transformer, init_parameters, scores_of
from posbuild.model.init import generator
from posbuild.records import NOT_MEASURED, NOT_SUPPORTED, REFERENCE, Coordinate, Row
from posbuild.settings import Settings, options_of

At = dict[str, Coordinate]

CAT, CHASES, MOUSE = (word.encode() for word in ("猫", "追", "老鼠"))
SENTENCE = CAT + CHASES + MOUSE
PLACES = list(range(len(SENTENCE)))
REORDERED = {
    "characters": PLACES[len(CAT + CHASES) :] + PLACES[len(CAT) : len(CAT + CHASES)] + PLACES[: len(CAT)],
    "reversal": PLACES[::-1],
}
LAYERS = 2  # of the small model
RELATIVE, OF_CODES = "of the largest output", "of the codes"
CODES, MOST = 16, 4096  # codes of how many train lengths are looked at, and at most how many: pairs are compared
WEIGHTS = 2**24  # attention weights held at once, at most
REFERENCES: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("none", {}),
    "sinusoidal": ("sinusoidal", {}),
    "rope": ("rope", {}),
    "relative unsigned": ("relative", {"signed": False}),
}
BY_THE_MASK = "a causal mask alone tells the model the order of tokens, so this is above 0 whatever the encoding"


def probes(model: Transformer, settings: Settings, tokens: Tensor) -> list[Row]:
    """Every probe of the encoding of `model`.

    tokens  (N, L) int64 text, for the attention by distance
    """
    fresh, drawn = small_model(settings, settings.pe, causal=settings.dims.causal)
    untrained = (
        f"{' and '.join(drawn)} of the encoding would start at zero and show nothing, so random values stood in"
        if drawn
        else ""
    )
    trained = copy.deepcopy(model.encoding).to(device="cpu", dtype=torch.float64)
    length = settings.train.length
    positions = min(CODES * length, MOST, model.longest or MOST)
    rows = [*order_rows(settings), shift_row(fresh, length)]
    with torch.no_grad():
        for parameters, encoding, note in (("start", fresh.encoding, untrained), ("trained", trained, "")):
            rows += [
                replace(row, at={**row.at, "parameters": parameters}, note=_joined(row.note, note))
                for row in encoding_rows(encoding, length, positions)
            ]
    return rows + attention_rows(model, tokens)


def reference_probes(settings: Settings) -> list[Row]:
    """Order, shift and linear map of well-known encodings, untrained, in a small model of the run's width.

    They stand in every record, whatever it is of, so that what is said of encodings by themselves can always be looked
    up. Measures begin with "reference/" in place of "probe/", and `at` names the encoding (`scheme`).
    """
    rows = []
    for name, (scheme, options) in REFERENCES.items():
        own = replace(settings, scheme=scheme, pe=options_of(scheme, options))
        rows += [
            replace(row, measure=REFERENCE + row.measure.removeprefix("probe/"), at={"scheme": name, **row.at})
            for row in _reference_rows(own)
        ]
    return rows


def _reference_rows(settings: Settings) -> list[Row]:
    try:
        model, _ = small_model(settings, settings.pe, causal=True)
    except ConfigError as error:  # such as rope in heads of odd width
        return [_no_number(measure, {}, str(error)) for measure in ("probe/order", "probe/shift")]
    length = settings.train.length
    rows = [*order_rows(settings), shift_row(model, length)]
    with torch.no_grad():
        codes = input_codes(model.encoding, min(length, MOST))
        mapped = [] if codes is None else linear_map_rows(codes, max(1, len(codes) // 8))
    return rows + [replace(row, at={**row.at, "parameters": "start"}) for row in mapped]


# ------------------------------------------------------------------------------------------- the small, untrained model


def small_model(settings: Settings, options: Options, *, causal: bool) -> tuple[Transformer, list[str]]:
    """An untrained float64 model of the run's width on the CPU, whose tokens are bytes, and those of the encoding's
    parameters that were drawn at random because they start at zero.
    """
    sizes = replace(settings.model, causal=causal, n_layers=min(LAYERS, settings.model.n_layers), dropout=0.0)
    dims = replace(settings.dims, causal=causal, n_layers=sizes.n_layers)
    model = Transformer(sizes, registry.encoding(settings.scheme, options, dims), dims, BYTES.size).double().eval()
    init_parameters(model, settings.seed)
    zeros = [(name, parameter) for name, parameter in model.named_parameters() if not parameter.any()]
    for name, parameter in zeros:
        nn.init.normal_(parameter, std=0.5, generator=generator(settings.seed, f"probe {name}"))
    return model, [name.removeprefix("encoding.") for name, _ in zeros if name.startswith("encoding.")]


def options_for(settings: Settings, attention: str) -> tuple[Options, str]:
    """The run's options or, if they do not work under this attention, the first variant in one choice that does.

    attention is "causal" or "bidirectional". Also says what was changed. Raises ConfigError if nothing works.
    """
    declared, dims = registry.scheme(settings.scheme), replace(settings.dims, causal=attention == "causal")
    if declared.causal_only and not dims.causal:
        raise ConfigError(declared.causal_only)
    try:
        settings.pe.check(dims)
        return settings.pe, ""
    except ConfigError as error:
        for item in dataclasses.fields(settings.pe):
            value = getattr(settings.pe, item.name)
            for other in type(value) if isinstance(value, enum.Enum) else ():
                variant = replace(settings.pe, **{item.name: other})
                try:
                    variant.check(dims)
                    return variant, (
                        f"pe.{item.name}={value.name} does not work in a {attention} model, so this one was built with "
                        f"pe.{item.name}={other.name}"
                    )
                except ConfigError:
                    continue
        raise error


# --------------------------------------------------------------------------------------------- order, and shifts of it


def order_rows(settings: Settings) -> list[Row]:
    """How far the outputs of reordered tokens are from the reordered outputs, in both attentions; 0: blind to order.

    characters: 猫追老鼠 becomes 老鼠追猫, the same bag of bytes; reversal: all bytes in the opposite order, which an
    encoding that cannot tell left from right does not see.
    """
    rows = []
    tokens = torch.tensor([list(SENTENCE)])
    for attention in ("bidirectional", "causal"):
        places: dict[str, At] = {change: {"attention": attention, "change": change} for change in REORDERED}
        try:
            options, changed = options_for(settings, attention)
        except ConfigError as error:
            rows += [_no_number("probe/order", at, str(error), RELATIVE) for at in places.values()]
            continue
        model, _ = small_model(settings, options, causal=attention == "causal")
        for change, at in places.items():
            if row := _too_long(model, len(SENTENCE), "probe/order", at):
                rows.append(row)
                continue
            order = REORDERED[change]
            value = difference(model, (tokens, None), (tokens[:, order], None), order)
            note = _joined(changed, BY_THE_MASK if attention == "causal" else "")
            rows.append(Row.of(value, measure="probe/order", at=at, unit=RELATIVE, note=note))
    return rows


def shift_row(model: Transformer, train_length: int) -> Row:
    """How far the outputs move when all positions grow by half the train length; 0: they depend on distance alone."""
    offset = max(1, train_length // 2)
    at: At = {"offset": offset}
    if row := _too_long(model, len(SENTENCE) + offset, "probe/shift", at):
        return row
    tokens, positions = torch.tensor([list(SENTENCE)]), torch.arange(len(SENTENCE))[None]
    value = difference(model, (tokens, positions), (tokens, positions + offset))
    return Row.of(value, measure="probe/shift", at=at, unit=RELATIVE)


def difference(model: Transformer, first: tuple, second: tuple, permutation: Sequence[int] | None = None) -> float:
    """The largest difference between the outputs for two inputs, each (tokens, positions), over the largest output.

    permutation: of the first one's outputs, before they are compared.
    """
    with torch.inference_mode():
        one, other = model(*first), model(*second)
    one = one if permutation is None else one[:, permutation]
    return float((one - other).abs().max() / one.abs().max())


def _too_long(model: Transformer, tokens: int, measure: str, at: dict) -> Row | None:
    if model.longest is None or tokens <= model.longest:
        return None
    return Row(
        measure=measure,
        at=at,
        unit=RELATIVE,
        status=NOT_SUPPORTED,
        reason=f"the probe needs {tokens} positions, and the encoding is not defined beyond {model.longest}",
    )


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _no_number(measure: str, at: At, reason: str, unit: str = "") -> Row:
    return Row(measure=measure, at=at, unit=unit, status=NOT_MEASURED, reason=reason)


# --------------------------------------------------------------------------------------------------- codes and scores


def encoding_rows(encoding: Encoding, train_length: int, positions: int) -> list[Row]:
    """What can be read off an encoding alone: codes of the first `positions` positions, or scores within L (the train
    length).

    Of codes, the similarity by distance and the linear map are those of the first L, or of `positions` if that is less.
    """
    codes = input_codes(encoding, positions)
    if codes is None:
        return profile_rows(distance_scores(encoding, train_length), "scores") + bias_rows(encoding, train_length)
    within = min(train_length, positions)
    note = (
        f"only the first {within} of the {train_length} positions of the train length were looked at"
        if within < train_length
        else ""
    )
    rows = [
        *profile_rows(mean_similarity(codes[:within]), "codes"),
        *distinct_rows(codes),
        *linear_map_rows(codes, max(1, within // 8)),
    ]
    return [replace(row, note=note) for row in rows]


def input_codes(encoding: Encoding, count: int) -> Tensor | None:
    """What the encoding makes of zero token vectors at the first positions, (count, M); None: it acts elsewhere."""
    x_TM = torch.zeros(count, encoding.dims.d_model, dtype=torch.float64)
    codes = encoding.at_input(x_TM[None], torch.arange(count)[None])[0]
    return codes if codes.any() else None


def mean_similarity(codes: Tensor) -> Tensor:
    """Mean cosine similarity of two codes (T, M) by their distance, (T,)."""
    unit = nn.functional.normalize(codes, dim=-1)
    similarity = unit @ unit.T
    return torch.stack([similarity.diagonal(distance).mean() for distance in range(len(codes))])


def distance_scores(encoding: Encoding, count: int) -> Tensor:
    """Score of one fixed query and key (ones in every channel) by distance, mean over heads and layers, (count,).

    The query stands at the last of `count` positions.
    """
    dims, keys = encoding.dims, torch.arange(count)[None]
    total = torch.zeros(count, dtype=torch.float64)
    ones = torch.ones(1, dims.n_heads, count, dims.head_dim, dtype=torch.float64)
    vectors = torch.ones(1, count, dims.d_model, dtype=torch.float64)
    for layer in range(dims.n_layers):
        found = scores_of(encoding, ones[:, :, :1], ones[:, : dims.n_kv_heads], keys[:, -1:], keys, layer, vectors)
        total += found[0, :, 0].mean(dim=0).flip(0)
    return total / dims.n_layers


def profile_rows(profile: Tensor, of: str) -> list[Row]:
    """Rank correlation (Spearman) of a similarity with distance, and the first distance after which it does not fall."""
    from scipy.stats import spearmanr

    spread, scale = float(profile.max() - profile.min()), float(profile.abs().max())
    if spread <= 1e-12 * scale:
        rank = _no_number(
            "probe/spearman", {"of": of}, f"the {of} are the same at every distance, so they have no order to compare"
        )
    else:
        value = float(spearmanr(range(len(profile)), profile.numpy()).statistic)
        rank = Row.of(value, measure="probe/spearman", at={"of": of}, unit="rank correlation", count=len(profile))
    rising = (profile.diff() >= -1e-12 * scale).nonzero()
    falls = int(rising[0]) if len(rising) else len(profile) - 1
    return [rank, Row(measure="probe/falls_until", at={"of": of}, value=falls, unit="tokens", count=len(profile))]


def distinct_rows(codes: Tensor) -> list[Row]:
    """How many of the positions have a code of their own, and how far apart the two nearest codes are.

    The distance is relative to the codes' root mean square norm: rounding makes codes differ that mean the same, so it
    says whether a model can tell all positions apart; the count says only whether any two are equal to the bit.
    """
    size = float(codes.square().sum(dim=1).mean().sqrt())
    nearest = float(nn.functional.pdist(codes).min())
    return [
        Row(measure="probe/distinct_codes", value=len(torch.unique(codes, dim=0)), unit="codes", count=len(codes)),
        Row.of(nearest / size, measure="probe/code_distance", unit=OF_CODES, count=len(codes)),
    ]


def linear_map_rows(codes: Tensor, offset: int) -> list[Row]:
    """Whether the code of p + offset is one fixed linear map of the code of p.

    The value is what the best map leaves over the size of the codes; 0: it is one.

    rotation: each pair of channels turns by the angle that suits it best, in the better of two pairings; judged on all.
    fitted: by least squares on half of the positions, drawn at random, judged on the others.
    """
    before, after = codes[:-offset], codes[offset:]
    measure = "probe/linear_map"
    rotation: At = {"offset": offset, "map": "rotation"}
    fitted: At = {"offset": offset, "map": "fitted"}
    if codes.shape[1] % 2:
        first = _no_number(
            measure,
            rotation,
            f"the code has {codes.shape[1]} channels, an odd number, which cannot be paired",
            OF_CODES,
        )
    else:
        value = min(_rotation_residual(pair(before), pair(after)) for pair in (_neighbours, _halves))
        first = Row(measure=measure, at=rotation, value=value, unit=OF_CODES, count=len(before))
    # Drawn, since every second position would hide the sign of a channel that alternates.
    drawn = torch.randperm(len(before), generator=torch.Generator().manual_seed(0))
    fit, rest = drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]
    linear = torch.linalg.lstsq(before[fit], after[fit], driver="gelsd").solution
    value = float((after[rest] - before[rest] @ linear).norm() / after[rest].norm())
    return [first, Row(measure=measure, at=fitted, value=value, unit=OF_CODES, count=len(rest))]


def _neighbours(codes: Tensor) -> Tensor:
    """Channels 2c and 2c + 1 as one complex number."""
    return torch.complex(codes[:, 1::2].contiguous(), codes[:, 0::2].contiguous())


def _halves(codes: Tensor) -> Tensor:
    """Channels c and c + M/2 as one complex number."""
    sine, cosine = codes.chunk(2, dim=1)
    return torch.complex(cosine.contiguous(), sine.contiguous())


def _rotation_residual(before: Tensor, after: Tensor) -> float:
    # The angle by which each pair turns best, in closed form; a pair that is zero everywhere turns by none.
    turn = torch.polar(torch.ones(before.shape[1], dtype=torch.float64), (before.conj() * after).sum(dim=0).angle())
    return float((after - before * turn).norm() / after.norm())


def bias_rows(encoding: Encoding, train_length: int) -> list[Row]:
    """Mean over heads and layers of what is added to the scores, by distance; no rows if nothing is, whatever the content.

    The query stands at the last position of the train length, or at the first for keys that come later.
    """
    layers, rows = range(encoding.dims.n_layers), []
    for distance in distances(train_length, encoding.dims.causal):
        query = torch.tensor([[train_length - 1 if distance >= 0 else 0]])
        key, shared = query - distance, encoding.prepare(query)
        biases = [encoding.at_scores(query, key, layer, shared) for layer in layers]
        means = [float(bias.dense(query, key, torch.float64).mean()) for bias in biases if isinstance(bias, Positional)]
        if not means:
            return []
        rows.append(Row.of(sum(means) / len(layers), measure="probe/bias", at={"distance": distance}, unit="score"))
    return rows


def distances(train_length: int, causal: bool) -> list[int]:
    """0 and the powers of two below the train length, to both sides if not causal (negative: the key comes later)."""
    before = [0, *(1 << n for n in range((train_length - 1).bit_length()))]
    return before if causal else [-distance for distance in before[:0:-1]] + before


# --------------------------------------------------------------------------------------- attention of the trained model


@contextmanager
def listening(encoding: Encoding) -> Iterator[dict[str, list]]:
    """Notes what the encoding hands to attention, a list by hook with one entry a layer."""
    heard: dict[str, list] = {"at_queries": [], "at_keys": [], "at_tokens": [], "at_scores": []}
    for hook, results in heard.items():
        setattr(encoding, hook, _noting(getattr(encoding, hook), results))
    try:
        yield heard
    finally:
        for hook in heard:
            delattr(encoding, hook)  # the class's own method shows again


def _noting(hook: Callable, results: list) -> Callable:
    def noted(*given: Any) -> Any:
        results.append(hook(*given))
        return results[-1]

    return noted


def attention_rows(model: Transformer, tokens: Tensor) -> list[Row]:
    """Mean attention weight by distance, over layers, heads, windows and the queries that have a key there.

    tokens  (N, L) int64 text
    """
    (n_rows, length), n_layers = tokens.shape, len(model.blocks)
    positions = torch.arange(length, device=model.embedding.weight.device)[None]
    pattern = Pattern(positions, positions, causal=model.dims.causal)
    sums = dict.fromkeys(distances(length, model.dims.causal), 0.0)
    with evaluating(model), listening(model.encoding) as heard:
        model(tokens.to(positions.device))
        for block, q, k, kept, bias in zip(model.blocks, *heard.values(), strict=True):
            for queries in torch.arange(length).split(max(1, WEIGHTS // (q.shape[0] * q.shape[1] * length))):
                rows = slice(int(queries[0]), int(queries[-1]) + 1)
                found = exact.weights(q, k, pattern, bias, block.attention.scale, kept, rows)
                mean_QK = found.float().mean(dim=(0, 1)).cpu().double()
                for distance in sums:
                    keys = queries - distance
                    there = (keys >= 0) & (keys < length)
                    sums[distance] += float(mean_QK[there.nonzero()[:, 0], keys[there]].sum()) / n_layers
    return [
        Row.of(
            total / (length - abs(distance)),
            measure="probe/attention",
            at={"distance": distance},
            unit="weight",
            count=n_rows * (length - abs(distance)),
        )
        for distance, total in sums.items()
    ]


def signal_rms(model: Transformer, tokens: Tensor) -> dict[str, float]:
    """Root mean square of the token vectors, of what the encoding adds to them at the input, and the ratio of the two.

    The signal is 0 for an encoding that does not act at the input. tokens  (N, T) int64
    """
    with evaluating(model):
        tokens = tokens.to(model.embedding.weight.device)
        vectors = model.embedding(tokens)
        signal = model.encoding.at_input(vectors, torch.arange(tokens.shape[1], device=tokens.device)[None]) - vectors
        of_tokens, of_signal = (float(x.float().square().mean().sqrt()) for x in (vectors, signal))
    return {"tokens": of_tokens, "signal": of_signal, "ratio": of_signal / of_tokens}
