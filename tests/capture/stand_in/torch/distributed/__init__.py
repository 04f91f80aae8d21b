# SPDX-License-Identifier: Apache-2.0
"""`torch.distributed` of a build without it."""


def is_available() -> bool:
    """No group can be made."""
    return False
