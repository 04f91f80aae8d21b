# SPDX-License-Identifier: Apache-2.0
"""XLA profiles as Chrome JSON, `*.trace.json.gz`, as JAX and xprof derive it from an XSpace.

It is converted back to planes and read as `formats.xplane` reads those.  The format lacks the profile's start
time, the devices' peaks and global ids, the programs, the memory space of accesses, and all events after the
first million.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.rewriting import Redactor
from cclbench.ground.errors import InputError

MOST_EVENTS: Final = 1_000_000
"""xprof and JAX write the first million events, without a mark that there were more."""
_PLANES: Final = re.compile(rb'"name"\s*:\s*"/(?:device:[A-Z]+:\d|host:CPU")')


class XlaJson(Reader):
    """Reader of XLA profiles as Chrome JSON."""

    name = "xla_json"
    precedence = 10
    derived_from = "xplane"
    description = "XLA profiles as Chrome JSON, of JAX and xprof: TPU, GPU, CPU"
    extensions: tuple[str, ...] = (".trace.json.gz", ".trace.json")
    capture = "the `*.trace.json.gz` derived from an xplane file, if that is not available"
    versions = "xprof 2.24"
    tested = "real: TPU v6e, MI300X and JAX on CPU devices, derived from their XSpace by xprof"
    after_other_text = True

    def sniff(self, head: bytes) -> float:
        """Sure of Chrome JSON whose processes have names of planes."""
        return 0.95 if b'"traceEvents"' in head and _PLANES.search(head) else 0.0

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """`InputError`: ids and times of a profile are texts here, and look like any other number."""
        del target, redactor
        raise InputError(
            "a profile converted to JSON cannot be redacted",
            where=str(path),
            hint="contribute the .xplane.pb that it was derived from, which the profiler writes beside it",
        )

    def parts(self, path: Path) -> list[Part]:
        """One part for each device, named by its plane; CPU devices if there is no accelerator."""
        from cclbench.formats.xplane import host
        from cclbench.formats.xplane.chrome import BESIDE, chrome

        profile = chrome(path)
        devices = [Part(name) for name in profile.devices]
        return devices or host.device_parts(profile.host_profile, path, profile.cut, BESIDE)

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Read one device of the profile."""
        from cclbench.formats.xplane import host
        from cclbench.formats.xplane.chrome import chrome

        profile = chrome(path)
        if profile.cut is not None and not allow_truncated:
            raise InputError(
                f"{profile.cut.reason} (after {profile.events:,} whole events)",
                where=f"{path}: byte {profile.cut.byte:,}",
                hint="re-run with --allow-truncated to use the part before it",
            )
        trace = (
            profile.device_trace(part.member)
            if profile.devices
            else host.read_device(profile.host_profile, part)
        )
        if part.member == self.parts(path)[0].member:
            trace.dropped += profile.dropped
        trace.cut = profile.cut
        trace.device_rows_in_order = profile.cut is None
        trace.notes.append(
            f"the file has {MOST_EVENTS:,} events, the most in this format: later ones are missing;"
            if profile.events >= MOST_EVENTS
            else f"this format has at most {MOST_EVENTS:,} events and does not state what it leaves out;"
        )
        trace.notes[-1] += " the .xplane.pb has all"
        return trace


READERS.add(XlaJson.name, XlaJson(), origin=__name__)
