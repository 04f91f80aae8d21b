# SPDX-License-Identifier: Apache-2.0
"""Redaction by allow-list: copies of a data point's files in which only public names and read figures stay.

What guards what:

- Evidence (`redact_evidence`): each text stays if `PublicNames` knows all its parts, each number of a text
  if the format's reader reads it; all else becomes a salted token, and parts that no metric needs are left
  out (`Format.withheld`).  The same text has the same token in all files, so that ranks of a host are known.
- Launch scripts (`redact_script`): line by line as evidence; numbers of options stay.
- The card and its calibration (`redact_statements`): what the contributor states in fields is published;
  their prose keeps words of letters, and public names.  An address with a login or a query is refused.

What is written is always built anew from the parsed content: nothing that no reader sees comes along.
"""

from cclbench.contribute.redaction.files import redact_evidence, redact_script
from cclbench.contribute.redaction.public_names import PublicNames, has_token
from cclbench.contribute.redaction.redactions import Redaction, by_kind
from cclbench.contribute.redaction.statements import card_texts, redact_statements

__all__ = [
    "PublicNames",
    "Redaction",
    "by_kind",
    "card_texts",
    "has_token",
    "redact_evidence",
    "redact_script",
    "redact_statements",
]
