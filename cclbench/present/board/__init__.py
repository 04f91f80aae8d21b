# SPDX-License-Identifier: Apache-2.0
"""A store or repository of data points as a static site."""
