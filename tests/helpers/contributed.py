# SPDX-License-Identifier: Apache-2.0
"""The card of a small job as its owner has it, without what the traces tell: the accelerator, its count."""

CARD = """\
version: 2
id: my-job
description: One rank of two, on ada-lovelace.example.org.
workload:
  phase: training
  precision: fp32
  model: {name: tiny-llama, moe: false, parameters: 8325632, embedding_parameters: 1048576,
          tied_embeddings: false, layers: 2, heads: 8, head_dim: 64}
  batch: {global: 16, sequence_length: 128}
hardware: {per_node: 2}
software: {framework: {name: pytorch}}
parallelism: {dp_replicate: 2}
"""
