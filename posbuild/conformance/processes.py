"""Gradients of small models in two processes, each with half of the batch, by DistributedDataParallel over gloo."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from posbuild.conformance.cases import TRAIN_LENGTH, Case
from posbuild.conformance.models import model_of, places, room, tokens
from posbuild.model import init_parameters

ROWS = 4
LIMIT = 180  # seconds, for all schemes together: twice what a busy machine takes
Gradients = dict[str, Tensor]


def gradients(model: nn.Module, case: Case, rows: slice) -> Gradients:
    """Of the mean over these rows of a batch."""
    model.zero_grad()
    length = room(case, TRAIN_LENGTH)
    model(tokens(ROWS, length)[rows], places(case, length)).square().mean().backward()
    own = model.module if isinstance(model, DistributedDataParallel) else model
    return {name: each.grad.clone() for name, each in own.named_parameters() if each.grad is not None}


def in_two_processes(every: Sequence[Case], folder: Path) -> dict[str, Gradients | str]:
    """The gradients of the first process for each case, or what was raised. They meet through a file and talk on this
    machine alone, so that no port has to be free and no network there."""
    workers = multiprocessing.spawn(process, (every, folder), nprocs=2, join=False)
    end = time.monotonic() + LIMIT
    while not workers.join(timeout=max(0.0, end - time.monotonic())):
        if time.monotonic() > end:
            for each in workers.processes:
                each.kill()
            raise TimeoutError(f"two processes took more than {LIMIT} seconds")
    return torch.load(folder / "found.pt", weights_only=True)


def process(rank: int, every: Sequence[Case], folder: Path) -> None:
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback:
        os.environ["GLOO_SOCKET_IFNAME"] = loopback
    torch.set_num_threads(1)
    wait = timedelta(seconds=LIMIT)
    distributed.init_process_group("gloo", f"file://{folder / 'meeting'}", timeout=wait, rank=rank, world_size=2)
    half, found = slice(rank * ROWS // 2, (rank + 1) * ROWS // 2), {}
    for case in every:
        found[case.name] = of_one(case, rank, half)
    if rank == 0:
        torch.save(found, folder / "found.pt")
    distributed.destroy_process_group()


def of_one(case: Case, rank: int, half: slice) -> Gradients | str:
    """Of the second step: a parameter that had no gradient in the first is missed there."""
    model = model_of(case)
    if rank:
        init_parameters(model, seed=rank)  # those of the first process count
    try:
        shared = DistributedDataParallel(model)
        gradients(shared, case, half)
        return gradients(shared, case, half)
    except RuntimeError as error:
        return str(error)
