"""What an encoding costs: parameters, speed and memory, each also as a ratio to a model without encoding.

Both models work in turn in one process, the first of each round alternating; a ratio is the median of those of the
rounds. How busy the machine was stands in the `note` of every row: on one that is not idle the ratios still hold,
roughly, and the speeds do not.
"""

from __future__ import annotations

import copy
import ctypes
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from posbuild.evaluation.losses import evaluating, token_losses
from posbuild.model import Transformer
from posbuild.records import MEASURED, NOT_MEASURED, Row

SECONDS = 0.1  # least time of one model's work in a round
DECODED = 32  # tokens, at most
EVALUATED_ON_CPU = 4096  # tokens in a batch, at most: more are no faster there
SPEED, BYTES = "tokens/s", "bytes"

# Dtypes by Lightning's names of precisions: of the operations that autocast chooses, or of weights and all.
AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
WEIGHTS = {"bf16-true": torch.bfloat16, "16-true": torch.float16, "64-true": torch.float64}

Work = Callable[[], tuple[int, float]]  # does something once: tokens processed, seconds it took


def cost(
    model: Transformer,
    twin: Transformer,
    *,
    train_length: int,
    batch_size: int,
    batch_tokens: int,
    precision: str,
    rounds: int,
) -> list[Row]:
    """Rows for `model`, with ratios to `twin`, a model of the same sizes without encoding on the same device.

    precision   of the training, by Lightning's name and resolved ("32-true", "bf16-mixed", ...)

    training    one step of forward, backward and AdamW on batch_size windows of L tokens, in that precision
    evaluation  losses of batch_tokens tokens in windows of L, and of 4L or the most that the encoding is defined for
                (on a CPU of EVALUATED_ON_CPU tokens, if that is less)
    decoding    one token at a time for a single text, with the cache, in the second half of L (at most DECODED tokens)
    memory      the high-water mark during one training step, and one evaluation at the longer length, above what the
                process (on a GPU: torch) held just before: weights and optimiser state are held and do not count

    Evaluation and decoding run in the model's own dtype. Memory on a CPU is known to some 2 MB.
    Tokens are random: cost does not depend on them. Nothing here changes the weights of `model`.
    """
    machine = f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores"
    longer = min(4 * train_length, model.longest or 4 * train_length)
    lengths = sorted({train_length, longer})
    pair = (model, twin)
    device = model.embedding.weight.device
    evaluated = min(batch_tokens, EVALUATED_ON_CPU) if device.type == "cpu" else batch_tokens

    trainings = [training_step(each, batch_size, train_length, precision) for each in pair]
    evaluations = {length: [evaluation(each, length, evaluated) for each in pair] for length in lengths}
    rows = parameter_rows(model, twin)
    rows += speed_rows("cost/train_speed", {}, rounds, *trainings)
    for length, works in evaluations.items():
        rows += speed_rows("cost/evaluation_speed", {"length": length}, rounds, *works)
    if model.dims.causal:
        rows += speed_rows("cost/decoding_speed", {}, rounds, *(decoding(each, train_length) for each in pair))
    else:
        reason = "a bidirectional model does not decode"
        rows.append(Row(measure="cost/decoding_speed", unit=SPEED, status=NOT_MEASURED, reason=reason))
    rows += memory_rows("training", {}, rounds, device, *trainings)
    rows += memory_rows("evaluation", {"length": longer}, rounds, device, *evaluations[longer])
    return [replace(row, note=f"{machine}; trained in {precision}") if row.status == MEASURED else row for row in rows]


def parameter_rows(model: Transformer, twin: Transformer) -> list[Row]:
    """Parameters of the model and, of these, the encoding's own."""
    total = count(model)
    return [
        Row(measure="cost/parameters", value=total, unit="parameters"),
        Row(measure="cost/positional_parameters", value=count(model.encoding), unit="parameters"),
        ratio_row("parameters", {}, total / count(twin)),
    ]


def count(module: nn.Module) -> int:
    """Numbers that it learns."""
    return sum(parameter.numel() for parameter in module.parameters())


def ratio_row(what: str, at: dict, value: float) -> Row:
    """A figure of the model over that of the model without encoding."""
    return Row(measure="cost/ratio", at={"what": what} | at, value=value, unit="times none")


# ------------------------------------------------------------------------------------------------------ what is timed


def training_step(model: Transformer, batch_size: int, length: int, precision: str) -> Work:
    """A training step on a copy of the model."""
    device = model.embedding.weight.device
    with torch.inference_mode(False), torch.enable_grad():
        model = copy.deepcopy(model).to(WEIGHTS.get(precision)).train()
        optimizer = torch.optim.AdamW(model.parameters(), fused=device.type in ("cpu", "cuda"))
    tokens = random_tokens(model, batch_size, length + 1)

    def work() -> tuple[int, float]:
        start = clock(device)
        with torch.inference_mode(False), torch.enable_grad():
            with torch.autocast(device.type, AUTOCAST.get(precision), enabled=precision in AUTOCAST):
                logits = model(tokens[:, :-1])
            nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        return batch_size * length, clock(device) - start

    return work


def evaluation(model: Transformer, length: int, tokens: int) -> Work:
    """The losses of about `tokens` tokens in windows of `length`."""
    windows = random_tokens(model, max(1, tokens // length), length + 1)

    def work() -> tuple[int, float]:
        start = clock(windows.device)
        losses = token_losses(model, windows, batch_tokens=tokens)
        return losses.size, clock(windows.device) - start

    return work


def decoding(model: Transformer, length: int) -> Work:
    """Greedy decoding of one text after a prompt that fills the first half of `length`; the prompt is not timed."""
    steps = min(DECODED, length - length // 2)
    prompt = random_tokens(model, 1, length // 2)

    def work() -> tuple[int, float]:
        with evaluating(model):
            cache = model.new_cache(1, length)
            token = model(prompt, cache=cache)[:, -1:].argmax(dim=-1)
            start = clock(prompt.device)
            for _ in range(steps):
                token = model(token, cache=cache).argmax(dim=-1)
            return steps, clock(prompt.device) - start

    return work


def random_tokens(model: Transformer, *shape: int) -> Tensor:
    """int64 tokens on the model's device, always the same."""
    with torch.inference_mode(False):
        drawn = torch.randint(model.vocab_size, shape, generator=torch.Generator().manual_seed(0))
        return drawn.to(model.embedding.weight.device)


def clock(device: torch.device) -> float:
    """Seconds, once the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter()


# ------------------------------------------------------------------------------------------------------ how it is timed


def speed_rows(measure: str, at: dict, rounds: int, work: Work, twin_work: Work) -> list[Row]:
    """Median speed of the first over the rounds, and the median ratio to the second."""
    rates = alternate(rounds, work, twin_work)
    speed = statistics.median(rate for rate, _ in rates)
    what = measure.removeprefix("cost/")
    return [
        Row(measure=measure, at=at, value=speed, unit=SPEED),
        ratio_row(what, at, statistics.median(rate / other for rate, other in rates)),
    ]


def alternate(rounds: int, work: Work, twin_work: Work) -> list[tuple[float, float]]:
    """Tokens per second of both in each round; who goes first alternates. One call of each before that warms up."""
    works = (work, twin_work)
    for each in works:
        each()
    rates = []
    for number in range(rounds):
        first = number % 2
        one, other = rate(works[first]), rate(works[1 - first])
        rates.append((other, one) if first else (one, other))
    return rates


def rate(work: Work) -> float:
    """Tokens per second over as many calls as take SECONDS."""
    tokens, seconds = work()
    while seconds < SECONDS:
        more = work()
        tokens, seconds = tokens + more[0], seconds + more[1]
    return tokens / seconds


# --------------------------------------------------------------------------------------------------------------- memory


def memory_rows(during: str, where: dict, rounds: int, device: torch.device, work: Work, twin_work: Work) -> list[Row]:
    """Median over rounds of the memory that one call of the first needs, and the ratio to the second."""
    at = {"what": during} | where
    found = [[peak_memory(each, device) for each in (work, twin_work)] for _ in range(rounds)]
    peaks = [statistics.median(values) for values in zip(*found, strict=True) if None not in values]
    if len(peaks) < 2:
        reason = "the system has no high-water mark that can be reset"
        return [Row(measure="cost/peak_memory", at=at, unit=BYTES, status=NOT_MEASURED, reason=reason)]
    rows = [Row(measure="cost/peak_memory", at=at, value=peaks[0], unit=BYTES)]
    if peaks[1]:
        rows.append(ratio_row("peak_memory", {"during": during} | where, peaks[0] / peaks[1]))
    return rows


def peak_memory(work: Work, device: torch.device) -> int | None:
    """Bytes by which the high-water mark rises above what is held before `work`; None where the system cannot tell."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - held
    if device.type != "cpu" or not reset_high_water_mark():
        return None
    held = high_water_mark()
    work()
    return high_water_mark() - held


def reset_high_water_mark() -> bool:
    """Return free memory to the system and set the process's mark to what it holds; false where it cannot be set."""
    if sys.platform != "linux":
        return False
    try:
        ctypes.CDLL(None).malloc_trim(0)  # else what earlier work left free would hide what this work needs
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return False
    return True


def high_water_mark() -> int:
    """The most bytes that the process held in memory since the mark was reset (Linux)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
