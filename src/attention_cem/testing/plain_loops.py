"""The surrogates as plain loops over classes: slow, obvious, and what the fast paths must equal.

Each function takes a surrogate for its parameters and arguments and computes rob_loss and intra_mse the way the
equations read. They are the oracle of the tests and the yardstick of the benchmarks.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from attention_cem.surrogates.cross_attention import GatedCrossAttention
from attention_cem.surrogates.gated import GatedAttentionCEM
from attention_cem.surrogates.kmeans import KMeansCEM
from attention_cem.surrogates.noise import counter_normal
from attention_cem.surrogates.slot_attention import SlotAttention
from attention_cem.surrogates.slot_cross import SlotCrossAttentionCEM


def slots_of_class(attention: SlotAttention, x: Tensor, noise: Tensor) -> Tensor:
    """Slot attention over one class's samples (M, d): slots (S, d)."""
    width = x.shape[-1]
    x = attention.norm_inputs(x)
    key, value = attention.to_key(x), attention.to_value(x)
    slots = attention.slot_mean + attention.slot_log_std.exp() * noise
    for _ in range(attention.num_iterations):
        query = attention.to_query(attention.norm_slots(slots)) / math.sqrt(width)
        weight = torch.softmax(key @ query.T / width**0.25, dim=1) + attention.eps
        weight = weight / weight.sum(0, keepdim=True)
        slots = attention.update(weight.T @ value, slots)
        slots = slots + attention.mlp(attention.norm_mlp(slots))
    return slots


def enriched_by_slots(attention: GatedCrossAttention, x: Tensor, slots: Tensor) -> Tensor:
    """Gated cross-attention of one class's samples (M, d) over its slots (S, d): (M, d)."""
    heads = attention.num_heads
    query, memory = attention.norm_query(x), attention.norm_slots(slots)
    context = []
    for q, m in zip(query.chunk(heads, -1), memory.chunk(heads, -1), strict=True):
        context.append(torch.softmax(q @ m.T / math.sqrt(q.shape[-1]), dim=-1) @ m)
    y = x + torch.tanh(attention.gate_attention) * attention.to_out(torch.cat(context, -1))
    return y + torch.tanh(attention.gate_ffn) * attention.ffn(attention.norm_ffn(y))


def slot_cross_loop(surrogate: SlotCrossAttentionCEM, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """`SlotCrossAttentionCEM` without the shut-off, one class after the other."""
    z = z.flatten(1)
    batch, (loss, mse) = z.shape[0], (z.sum() * 0, z.new_zeros(()))
    noise = counter_normal(surrogate.seed, surrogate.calls, (surrogate.num_slots, surrogate.slot_dim), z.dtype)
    for label in y.unique():
        raw = z[y == label]
        size = raw.shape[0]
        if size < surrogate.min_count:
            continue
        x = surrogate.projection(F.layer_norm(raw, (raw.shape[-1],)))
        slots = slots_of_class(surrogate.slot_attention, x, noise)
        enriched = enriched_by_slots(surrogate.cross_attention, x, slots)
        source = x if surrogate.assign_on == "input" else enriched
        cosine = F.normalize(source, dim=-1) @ F.normalize(slots, dim=-1).T
        r = torch.softmax(surrogate.assign_temp * cosine, dim=1)
        mass = r.sum(0)
        mean = r.T @ enriched / mass[:, None]
        variance = (r[:, :, None] * (enriched[:, None] - mean) ** 2).sum(0) / mass[:, None]
        variance = variance.clamp_min(surrogate.variance_floor)
        soft = surrogate.dimension_gate(variance.log())
        snr = variance / (mean**2 + surrogate.eps)
        hard = torch.sigmoid(surrogate.snr_sharp * (snr - surrogate.snr_thresh))
        beta = surrogate.softplus_beta
        excess = F.softplus(beta * (variance.log() - surrogate.log_threshold - surrogate.margin_m)) / beta
        weight = (mass / size) ** surrogate.slot_power
        class_loss = ((weight / weight.sum())[:, None] * soft * hard * excess).sum(0).mean()
        share = size / batch
        gate = torch.sigmoid(surrogate.class_gate_a * (share - surrogate.class_gate_b))
        loss = loss + share * gate * class_loss
        mse = mse + share * (raw - raw.mean(0)).square().mean().detach()
    return loss, mse


def gated_loop(surrogate: GatedAttentionCEM, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """`GatedAttentionCEM`, one class after the other."""
    z = z.flatten(1)
    batch, (loss, mse) = z.shape[0], (z.sum() * 0, z.new_zeros(()))
    for label in y.unique():
        raw = z[y == label]
        size = raw.shape[0]
        if size <= 1:
            continue
        normed = surrogate.norm(raw)
        pooling = surrogate.pooling
        value, gate = pooling.value_and_gate(normed).chunk(2, -1)
        logits = pooling.score(torch.tanh(value) * torch.sigmoid(gate))
        a = torch.softmax(logits, dim=0)
        x = normed if surrogate.statistics_on == "normed" else raw
        mean = (a * x).sum(0)
        if surrogate.form == "per_dim":
            variance = (a * (x - mean) ** 2).sum(0)
        else:
            variance = (a.squeeze(1) * ((x - mean) ** 2).sum(1)).sum().reshape(1)
        class_loss = torch.relu(torch.log(variance + surrogate.eps) - surrogate.log_threshold).mean()
        loss = loss + size / batch * class_loss
        mse = mse + size / batch * (raw - raw.mean(0)).square().mean().detach()
    return loss, mse


def kmeans_loop(surrogate: KMeansCEM, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """`KMeansCEM`'s batch loss, one class and one cluster after the other."""
    z = z.flatten(1)
    batch, mse = z.shape[0], z.new_zeros(())
    total, fitted = z.sum() * 0, 0
    known = surrogate.class_label.tolist()
    for label in y.unique():
        x = z[y == label]
        mse = mse + x.shape[0] / batch * (x - x.mean(0)).square().mean().detach()
        if int(label) not in known:
            continue
        place = known.index(int(label))
        fitted += 1
        alive = [k for k in range(surrogate.num_clusters) if surrogate.weight[place, k] > 0]
        distance = torch.stack([(x - surrogate.centroid[place, k]).square().sum(1) for k in alive], 1)
        nearest = distance.detach().argmin(1)
        for position, k in enumerate(alive):
            mine = x[nearest == position]
            weight = surrogate.weight[place, k]
            variance = surrogate.variance[place, k]
            if surrogate.form == "reference":
                variance = variance.mean().reshape(1)
            if len(mine):
                spread = (mine - surrogate.centroid[place, k]).square().mean(0)
                spread = spread.mean().reshape(1) if surrogate.form == "reference" else spread
                share = min(0.99, float(surrogate.blend * len(mine) / (weight * surrogate.class_count[place])))
                variance = share * spread + (1 - share) * variance
            elif surrogate.form == "reference":
                continue
            if surrogate.form == "reference":
                term = torch.relu(torch.log(variance + surrogate.gamma) - surrogate.log_threshold).sum()
            else:
                term = (
                    -weight.log()
                    + 0.5 * torch.log((variance + surrogate.noise_variance) / surrogate.noise_variance).sum()
                )
            total = total + weight * term
    return total / max(fitted, 1), mse
