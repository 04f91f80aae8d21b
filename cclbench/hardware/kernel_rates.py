# SPDX-License-Identifier: Apache-2.0
"""Attainable times of kernels by family and accelerator, learned from captures.

A kernel with a roofline time r (bytes / memory bandwidth, or FLOPs / usable rate, whichever is longer) takes
t = c · (e + r / s): e, the time of its family's small kernels; s, the share of the roofline that large ones
reach; c, a factor that differs from capture to capture, by shapes and software.  Its logarithm's root mean
square over captures, each compared with the others, is the spread: `seen` against captures of the same
accelerator, `unseen` against those of others only.  `scripts/kernel_rates.py` writes the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

import msgspec

from cclbench.hardware.accelerator import PRACTICAL, Accelerator
from cclbench.hardware.shipped_table import read_shipped_table

ANY: Final = "any"
"""Key of all families, and of all accelerators."""
_NINE_TENTHS: Final = 1.2816
"""90 % quantile of the standard normal distribution: four captures in five are within both bounds."""


class FamilyRate(msgspec.Struct, frozen=True):
    """Medians over captures: `small_ns` of kernels below 1 µs of roofline time, `share` of the roofline by
    those above 5 µs; None without such kernels."""

    captures: int
    small_ns: float | None
    share: float | None


class FamilySpread(msgspec.Struct, frozen=True):
    """Spread of log c over captures; `seen` is None without two captures of an accelerator."""

    captures: int
    seen: float | None
    unseen: float


class LearnedCapture(msgspec.Struct, frozen=True):
    """A capture of the table: its name, its accelerator, its computing kernels."""

    name: str
    accelerator: str
    kernels: int


class KernelRates(msgspec.Struct, frozen=True):
    """The table. `rates`: by family, then by accelerator, vendor or `ANY`; `launch_spread`:
    standard deviation over captures of the logarithm of the median launch call."""

    date: str
    version: str
    rates: Mapping[str, Mapping[str, FamilyRate]]
    spread: Mapping[str, FamilySpread]
    launch_spread: float
    captures: tuple[LearnedCapture, ...]

    @property
    def host_factor(self) -> float:
        """By which the host of another accelerator may be faster or slower."""
        return math.exp(_NINE_TENTHS * math.sqrt(2) * self.launch_spread)


class PairRates(NamedTuple):
    """A family on two accelerators, old and new: time of small kernels, ns, and share of the roofline of
    each; `factor`: by which a new time may miss its prediction; captures of the family on the new one."""

    small_ns: tuple[float, float]
    share: tuple[float, float]
    factor: float
    captures: int


def pair_rates(table: KernelRates, family: str, old: Accelerator, new: Accelerator) -> PairRates:
    """Rates of a family on both, of the narrowest scope that both have: the accelerator, else all of them
    (small kernels: else the vendor).

    The deviations c of two captures are assumed independent: the factor is exp(z · √2 · spread), z = 1.28.
    """
    family_rates = table.rates.get(family, {})
    any_family = table.rates[ANY]
    both = old.id in family_rates and new.id in family_rates
    spread = table.spread.get(family, table.spread[ANY])
    deviation = spread.seen if both and spread.seen is not None else spread.unseen

    def figure(name: str, device: Accelerator, *, by_vendor: bool) -> float:
        own_scope = (device.id,) if both else ()
        scopes = (*own_scope, device.vendor, ANY) if by_vendor else (*own_scope, ANY)
        values = (
            getattr(rates[scope], name)
            for rates in (family_rates, any_family)
            for scope in scopes
            if scope in rates
        )
        return float(next(value for value in values if value is not None))

    devices = (old, new)
    small = [figure("small_ns", device, by_vendor=True) for device in devices]
    shares = [figure("share", device, by_vendor=False) for device in devices]
    captures = family_rates[new.id].captures if new.id in family_rates else 0
    factor = math.exp(_NINE_TENTHS * math.sqrt(2) * deviation)
    return PairRates((small[0], small[1]), (shares[0], shares[1]), factor, captures)


def usable_rates(device: Accelerator) -> dict[str, float]:
    """What matrix products reach, FLOP/s, by precision: the fastest one measured; where none was, the peak
    times the share that those of another precision reached on the device, else `PRACTICAL`."""
    peaks = {word: rate for word, rate in device.peak_flops_per_s.items() if rate}
    measured = {word: rate for word, rate in device.attainable_flops_per_s.items() if rate}
    share = max((rate / peaks[word] for word, rate in measured.items() if word in peaks), default=PRACTICAL)
    return {word: measured.get(word, share * peak) for word, peak in peaks.items()}


@cache
def kernel_rates() -> KernelRates:
    """The table shipped with this version."""
    return read_shipped_table("kernel_rates.yaml", KernelRates)
