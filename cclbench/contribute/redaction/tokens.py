# SPDX-License-Identifier: Apache-2.0
"""Tokens and keys that are known by their beginning: whose they are, how they look, who says so.

"gitleaks RULE" is a rule of gitleaks' config/gitleaks.toml (revision b58d3f1), with exact lengths; here
are the least.  "unverified": in use, but not among those rules, and no other source was looked up.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Form(NamedTuple):
    """A form of an issuer's secrets: a regular expression, and the letters that its matches begin with."""

    issuer: str
    begins: tuple[str, ...]
    core: str
    source: str


TOKENS: Final = (
    Form(
        "Hugging Face",
        ("hf_",),
        r"hf_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{16,}",
        "gitleaks huggingface-access-token",
    ),
    Form(
        "Hugging Face",
        ("api_org_",),
        r"api_org_[A-Za-z0-9]{20,}",
        "gitleaks huggingface-organization-api-token",
    ),
    Form(
        "GitHub",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
        r"gh[pousr]_[A-Za-z0-9]{20,}",
        "gitleaks github-pat, github-oauth, github-app-token, github-refresh-token",
    ),
    Form("GitHub", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{20,}", "gitleaks github-fine-grained-pat"),
    Form("GitLab", ("glpat-",), r"glpat-[\w-]{16,}", "gitleaks gitlab-pat"),
    Form(
        "OpenAI, Anthropic, OpenRouter",
        ("sk-",),
        r"sk-(?:proj-|ant-|svcacct-|or-)?[A-Za-z0-9][\w-]{18,}",
        "gitleaks openai-api-key, anthropic-api-key; OpenRouter's unverified",
    ),
    Form(
        "Slack",
        ("xox",),
        r"xox[abeoprs]-[\w-]{10,}",
        "gitleaks slack-bot-token, slack-user-token, slack-legacy-token, slack-config-refresh-token",
    ),
    Form("Slack", ("xapp-",), r"xapp-[\w-]{10,}", "gitleaks slack-app-token"),
    Form("npm", ("npm_",), r"npm_[A-Za-z0-9]{30,}", "gitleaks npm-access-token"),
    Form("PyPI", ("pypi-",), r"pypi-[\w-]{16,}", "gitleaks pypi-upload-token"),
    Form("Docker", ("dckr_pat_",), r"dckr_pat_[\w-]{16,}", "unverified"),
    Form("NVIDIA", ("nvapi-",), r"nvapi-[\w-]{20,}", "unverified"),
    Form("Weights & Biases", ("wandb_v1_",), r"wandb_v1_[\w-]{20,}", "unverified"),
    Form("Replicate", ("r8_",), r"r8_[A-Za-z0-9]{30,}", "unverified"),
    Form("Groq", ("gsk_",), r"gsk_[A-Za-z0-9]{30,}", "unverified"),
    Form("Google", ("ya29.",), r"ya29\.[\w-]{20,}", "unverified"),
    Form("DigitalOcean", ("dop_v1_",), r"dop_v1_[0-9a-f]{40,}", "gitleaks digitalocean-pat"),
)

CLOUD_KEYS: Final = (
    Form(
        "AWS",
        ("AKIA", "ASIA", "ABIA", "ACCA", "AROA", "AIDA", "AGPA", "ANPA", "ANVA", "APKA"),
        r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA|ANVA|APKA)[A-Z0-9]{16}",
        "AWS IAM User Guide, IAM identifiers, Understanding unique ID prefixes",
    ),
    Form("Google Cloud", ("AIza",), r"AIza[\w-]{35}", "gitleaks gcp-api-key"),
    Form("Google Cloud", ("GOCSPX-",), r"GOCSPX-[\w-]{20,}", "unverified"),
)
