# SPDX-License-Identifier: Apache-2.0
"""Recurrent networks of cuDNN, MIOpen and oneDNN, one per call; elementwise gate operations are left out."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import matrix_precision

FAMILY = "recurrent network"
_GATES: Final = {0: 1, 1: 1, 2: 4, 3: 3}
"""Gates of a cell by mode: ReLU, tanh, LSTM, GRU (aten/src/ATen/cudnn/Descriptors.h, miopenRNNMode_t)."""
_LSTM: Final = 2
_GATES_ALONE: Final = "elementwise gate operations and tensors saved for the backward pass are not counted"


class Network(NamedTuple):
    """A network as the arguments of its call describe it."""

    flops: int
    """Of one product per step and matrix."""
    parameters: Tensor
    states: Tensor
    """Hidden states, and cell states where there are any."""
    result: Tensor


def parse_network(call: Call, mode_index: int, *, projects: bool) -> Network:
    """Parse a network; argument `mode_index` is its mode, followed by hidden size, projected size and layers.

    Each layer and direction has matrices G·H × (I + R) for G gates, H hidden and I input features, and where
    states are projected to size P, a matrix P × H; R is P there, else H.
    """
    x = call.tensor(0)
    mode, hidden, *options = (call.value(mode_index + i) for i in range(10))
    projected = options.pop(0) if projects else 0
    layers, batch_first, _, _, bidirectional, sizes, *_ = options
    layer_parameters = call.value(2)
    numbers = (hidden, projected, layers, layer_parameters)
    if mode not in _GATES or not all(type(number) is int for number in numbers):
        raise NoModel("its mode, sizes or number of layers are not recorded")
    directions, gates, state = (2 if bidirectional else 1), _GATES[mode], projected or hidden
    inputs = [x.shape[-1], *[directions * state] * (layers - 1)]
    matrices = sum(gates * hidden * (size + state) + projected * hidden for size in inputs) * directions
    has_biases = layer_parameters > (3 if projected else 2)
    biases = 2 * gates * hidden * layers * directions * has_biases
    batch = sizes[0] if sizes else x.shape[0 if batch_first else 1]  # packed sequences: the largest batch
    states = layers * directions * (state + (hidden if mode == _LSTM else 0))
    return Network(
        flops=2 * math.prod(x.shape[:-1]) * matrices,
        parameters=Tensor((matrices + biases,), x.dtype),
        states=Tensor((batch, states), x.dtype),
        result=Tensor((*x.shape[:-1], directions * state), x.dtype),
    )


@cost_model(FAMILY, r"aten::_cudnn_rnn", r"aten::miopen_rnn")
def recurrent_network(call: Call) -> Cost:
    """RNN, LSTM or GRU, of several layers and either or both directions.

    FLOPs: 2 a step of a sequence and element of a matrix
    Bytes: input, parameters, states; result, states
    Source: native_functions.yaml: _cudnn_rnn(input, weight, weight_stride0, weight_buf, hx, cx, mode,
    hidden_size, proj_size, num_layers, batch_first, dropout, train, bidirectional, batch_sizes,
    dropout_state); miopen_rnn without weight_buf and proj_size
    """
    cudnn, x = "cudnn" in call.name, call.tensor(0)
    network = parse_network(call, 6 if cudnn else 5, projects=cudnn)
    return Cost.from_tensors(
        flops=network.flops,
        precision=matrix_precision(call, x),
        reads=(x, network.parameters, network.states),
        writes=(network.result, network.states),
        assumes=_GATES_ALONE,
    )


@cost_model(FAMILY, r"aten::_cudnn_rnn_backward", r"aten::miopen_rnn_backward")
def recurrent_network_backward(call: Call) -> Cost:
    """Gradients of inputs and states, and of parameters where the output mask asks for them.

    FLOPs: 2 a step and element of a matrix for each of the two
    Bytes: input, parameters, states, result, gradients of result and states; gradients of all operands
    Source: native_functions.yaml: _cudnn_rnn_backward(input, weight, weight_stride0, weight_buf, hx, cx,
    output, grad_output, grad_hy, grad_cy, mode, hidden_size, proj_size, num_layers, ..., output_mask);
    miopen_rnn_backward without proj_size
    """
    cudnn, x = "cudnn" in call.name, call.tensor(0)
    network, mask = parse_network(call, 10, projects=cudnn), call.value(21 if cudnn else 20)
    if not isinstance(mask, tuple) or len(mask) != 4:
        raise NoModel("which gradients it computes is not recorded")
    has_parameters = bool(mask[3])
    return Cost.from_tensors(
        flops=network.flops * (1 + has_parameters),
        precision=matrix_precision(call, x),
        reads=(x, network.parameters, *(network.states, network.result) * 2),
        writes=(x, network.states, network.parameters if has_parameters else None),
        assumes=_GATES_ALONE,
    )


@cost_model(FAMILY, r"aten::mkldnn_rnn_layer")
def recurrent_layer(call: Call) -> Cost:
    """One layer in one direction.

    FLOPs: 2 a step and weight of its two matrices
    Bytes: input, matrices, biases, states; result, states
    Source: native_functions.yaml: mkldnn_rnn_layer(input, weight0, weight1, weight2, weight3, hx_, cx_, ...)
    Tested: no trace
    """
    x, *parameters = map(call.tensor, range(5))
    states = call.tensor(5), call.optional_tensor(6)
    tokens, hidden = math.prod(x.shape[:-1]), parameters[1].shape[-1]
    return Cost.from_tensors(
        flops=2 * tokens * (parameters[0].elements + parameters[1].elements),
        precision=matrix_precision(call, x),
        reads=(x, *parameters, *states),
        writes=(Tensor((*x.shape[:-1], hidden), x.dtype), *states),
        assumes=_GATES_ALONE,
    )
