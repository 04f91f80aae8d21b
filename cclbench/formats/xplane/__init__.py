# SPDX-License-Identifier: Apache-2.0
"""XLA profiles (XSpace, `*.xplane.pb`) of JAX, TensorFlow and PyTorch/XLA: TPU, GPU and CPU devices.

Each device is a rank.  Host rows belong to the process that drives all of them: see `process`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.files import open_output, require_uncompressed
from cclbench.formats.recognition import head_of
from cclbench.formats.rewriting import CAPTURED, COMMAND_LINE, ENVIRONMENT, SOURCE_PATH, SYSTEM, Redactor
from cclbench.ground.errors import InputError

_BEGINS: Final = re.compile(rb"\A\x0a[\s\S]{1,64}?\x12[\x01-\x7f](?:/|Task Environment)")
"""The first bytes of a plane, even if its length is damaged."""


class Xplane(Reader):
    """Reader of XLA profiles."""

    name = "xplane"
    precedence = 20
    frameworks: Mapping[str, str] = {"JAX profiler": "jax"}
    description = "XLA profiles (XSpace protobuf): TPU, GPU, CPU"
    extensions: tuple[str, ...] = (".xplane.pb",)
    capture = "`jax.profiler.trace(folder)`, PyTorch/XLA's `xp.trace`: the `*.xplane.pb` of every host"
    versions = "JAX 0.4 to 0.10"
    tested = (
        "real: TPU v6e, MI300X, GPUs of which some are idle, JAX on CPU devices of one and of two processes,"
        " TensorFlow on a CPU;"
        " documentation: NVIDIA GPUs, collectives of GPUs, asynchronous collectives"
    )

    withheld: Mapping[str, str] = {
        "source_stack": SOURCE_PATH,
        "command_line": COMMAND_LINE,
        "environment": ENVIRONMENT,
        "hostname": SYSTEM,
        "errors and warnings of the profiler": CAPTURED,
        "folders of source files": SOURCE_PATH,
    }

    def sniff(self, head: bytes) -> float:
        """Sure of a file that begins with a plane."""
        return 0.9 if _BEGINS.match(head) else 0.0

    def refuse(self, path: Path) -> None:
        """`InputError` for a file with a profile's name that does not begin with a plane."""
        if path.name.endswith(self.extensions) and not _BEGINS.match(head_of(path)):
            hint = "capture it again, or rename it if it is not a profile"
            raise InputError("does not begin with a plane: damaged", where=str(path), hint=hint)

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Rewrite texts in the nested messages, and the lengths around them."""
        from cclbench.formats.xplane.rewriting import ProtobufRewriter

        profile = ProtobufRewriter(require_uncompressed(path), redactor, withheld=self.withheld)
        with open_output(path, target) as write:
            profile.rewrite_profile(write)
        return True

    def parts(self, path: Path) -> list[Part]:
        """One part for each device, named by its plane; CPU devices if there is no accelerator."""
        # Here and below: imports that are not needed to recognise a file.
        from cclbench.formats.xplane import host
        from cclbench.formats.xplane.space import space_of

        profile = space_of(path)
        devices = [Part(name) for name in profile.devices]
        return devices or host.device_parts(profile.host_profile, path, profile.space.cut)

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Read one device of the profile."""
        from cclbench.formats.xplane import host
        from cclbench.formats.xplane.space import space_of

        profile = space_of(path)
        space = profile.space
        if space.cut is not None and not allow_truncated:
            raise InputError(
                space.cut.reason,
                where=f"{path}: byte {space.cut.byte:,}",
                hint="re-run with --allow-truncated to use the planes before it",
            )
        trace = (
            profile.device_trace(part.member)
            if profile.devices
            else host.read_device(profile.host_profile, part)
        )
        trace.cut = space.cut
        if space.complaints:
            trace.notes.append(f"the profiler reports {space.complaints} errors or warnings")
        return trace


READERS.add(Xplane.name, Xplane(), origin=__name__)
