"""The Lightning module: the loss of next tokens or of masked ones, AdamW and its rates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F

from posbuild.data.masking import NO_TARGET, Masked
from posbuild.model import Transformer
from posbuild.settings import OptimSettings, Schedule, Settings

FUSED_DEVICES = ("cpu", "cuda", "mps")  # with a fused AdamW


class LanguageModel(LightningModule):
    """Trains `model` to predict each next token of a window, or its masked tokens.

    `losses` holds the sum and the number of the losses since the last `take_loss`, on the device: a value that is not
    finite stays in the sum, so looking now and then misses none.
    """

    def __init__(self, settings: Settings, model: Transformer) -> None:
        super().__init__()
        self.settings, self.model = settings, model
        self.losses = torch.zeros(2)  # not a buffer: those of the first process are copied into the others
        if settings.train.compile:
            model.compile()  # in place, so the names of the parameters stay clean

    def on_train_start(self) -> None:
        self.losses = self.losses.to(self.device)

    def on_train_batch_start(self, batch: Tensor | Masked, batch_idx: int) -> None:
        # Dropout as a pure function of seed, batch and process: a resumed run draws what an uninterrupted one draws.
        entropy = (self.settings.seed, batch_idx, self.global_rank)
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]))

    def training_step(self, batch: Tensor | Masked, batch_idx: int) -> Tensor:
        """Mean loss, nats/token, of windows (B, length + 1), or of the masked tokens of windows (B, length)."""
        inputs, targets = batch if isinstance(batch, Masked) else (batch[:, :-1], batch[:, 1:])
        rows, length = inputs.shape
        positions = self.model.numbering.in_training(rows, length, batch_idx, self.global_rank)
        loss = mean_loss(self.model(inputs, None if positions is None else positions.to(inputs.device)), targets)
        with torch.no_grad():
            self.losses += torch.stack([loss.detach(), torch.ones_like(loss)])
        return loss

    def take_loss(self) -> Tensor:
        """The mean loss since the last call over all processes, a scalar on the device; all have to call it together."""
        total, count = self.trainer.strategy.reduce(self.losses.clone(), reduce_op="sum")
        self.losses.zero_()
        return total / count

    def configure_optimizers(self) -> Any:
        optim = self.settings.optim
        # The fused step unscales gradients by itself, too late for clipping; only 16-mixed scales them.
        fused = self.device.type in FUSED_DEVICES and self.trainer.precision != "16-mixed"
        groups = parameter_groups(self.model, optim, self.settings.pe_lr_mult)
        optimizer = torch.optim.AdamW(groups, lr=optim.lr, betas=(optim.beta1, optim.beta2), fused=fused)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: rate(step, optim, self.settings.train.steps)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        # Lightning's own refuses every fused optimiser under mixed precision, though in bf16 no gradient is scaled.
        if gradient_clip_val is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), gradient_clip_val)


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy, nats/token, in float32: logits (B, T, V), targets (B, T) int64, NO_TARGET where there is none."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET)


def parameter_groups(model: Transformer, optim: OptimSettings, pe_lr_mult: float) -> list[dict[str, Any]]:
    """Every parameter in exactly one group: matrices of the blocks, which decay; the encoding's own, at lr * pe_lr_mult;
    the rest (embeddings, norms, biases). Groups that would be empty are left out.
    """
    encoding = list(model.encoding.parameters())
    matrices = [parameter for parameter in model.blocks.parameters() if parameter.ndim >= 2]
    placed = {id(parameter) for parameter in [*encoding, *matrices]}
    rest: list[nn.Parameter] = [parameter for parameter in model.parameters() if id(parameter) not in placed]
    groups = [
        {"name": "matrices", "params": matrices, "lr": optim.lr, "weight_decay": optim.weight_decay},
        {"name": "rest", "params": rest, "lr": optim.lr, "weight_decay": 0.0},
        {"name": "encoding", "params": encoding, "lr": optim.lr * pe_lr_mult, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def rate(step: int, optim: OptimSettings, steps: int) -> float:
    """The rate of a step (the first is 0) of `steps`, times lr.

    It is 1/warmup at the first step and 1 at step number `warmup`. The decay ends at final_lr where step number
    `steps + 1` would be, so that with final_lr 0 the last step still moves; from there on it stays.
    """
    if step < optim.warmup:
        return (step + 1) / optim.warmup
    start = optim.warmup
    if optim.schedule is Schedule.constant:
        start = max(start, steps - round(optim.decay_fraction * steps))
    done = min(1.0, max(0, step - start) / max(1, steps - start)) if step < steps else 1.0
    remaining = (1 + math.cos(math.pi * done)) / 2 if optim.schedule is Schedule.cosine else 1 - done
    return optim.final_lr + (1 - optim.final_lr) * remaining
