# SPDX-License-Identifier: Apache-2.0
"""Pictures and documents, made from result rows alone."""
