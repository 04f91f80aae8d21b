# SPDX-License-Identifier: Apache-2.0
"""What tests share: traces, runs and pages made by hand, services, how commands are called."""
