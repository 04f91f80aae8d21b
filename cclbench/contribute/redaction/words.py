# SPDX-License-Identifier: Apache-2.0
"""Words that are no name where nothing calls them one: of traces, kernels, frameworks, schedulers, accounts.

A user may be called `adam`, a job `train`: replaced everywhere, they would take optimizers and steps along.
"""

from __future__ import annotations

from typing import Final

_WORDS: Final = """
abs accelerate adam adamw add addmm admin administrator aic all allgather allreduce alltoall alps alt
amd ampere and any api app apple arc arg argmax argmin args arr asm ate aten attention aurora aws
azureuser backward baddbmm bar barrier bash bat batch batchnorm bcc bce begin bench benchmark benchmarks
bert bfs big bin bit blackwell blk bloom bmm bool bos box broadcast buf bug bus bwd byte c10 caffe2 cat
centos char client clone cls cluster cmd cnn coder col common compute concat conda container conv copy
cos count cpu cross cub cuda cudnn cumsum cut data dataset date day dbg ddp debian debug deepseek
deepspeed def default default_pg del delta dense des dev device devices dfs diffusion dim dir div dlrm
doc docker dot double dropout dst dtd efa einsum element elementwise embed embedding end ent entropy env
eos epoch eps eqv erf error etc eval event events exp expand expert experts ext falcon false fcn fedora
fft fig fil fill fir fit fix flash float fma fmt fns for forward frontier fsdp fsx fun fused fwd gas
gather gcp gdr gelu gemm gemma gemv gen geo get gid git global gloo glu google gpt gpu gqa grace graph
group groups grp gru guest gui half head hip histogram hit hlo hmm home hopper host hostname hosts hot
hub hwc idx iid ilp index inf infer inference info inp int intel interactive inv iop ips isa iter its
jar jax jit job jobs jovyan keras kernel kernels key keys kit kvs kwargs lag lamb lap launch launcher
law layer layernorm lcm len lib lib64 lightning lin linear lion llama llm lms local localdomain
localhost log login long lop loss lovelace low lse lut mac machine main man map mask masked master mat
matmul max maxtext mcp mean megatron mem memcpy memory memset mesh mha min mistral mix mixtral mkl mla
mlp mma mnt mod model models moe mpi mpirun mps mqa msccl mscclpp mse msg mul muon mut name names nan
native nav nccl neg net new nic nlp nms nobody node nodes none nop nor norm not notice now npu null num
nvidia nvl nvt obj odd off old one opc ops opt optimizer ord org out own packages pad pal par pascal pat
pbs pci pdf pdl pem per perlmutter permute pgs pid pip pipeline pix pml pod polaris pool pos pow prd pre
proc profile profiler profiling project projects ptr ptx public put pwd pxn python python3 pytorch qkv
que qwen ran rank ranks raw ray rccl rdc recv red reduce ref reg rel relu rem repeat res reshape resnet
ret rev ring rms rmsnorm rnd rng rnn roc rocky root rot row rsa run runner runs sas sat sbatch sbs
scatter scp scratch script scripts sdk sdp sec seg sel select send seq serve server serving set sgd
sglang sha shape shared shell shm sigmoid silu sim simple sin site size slice slurm smi sms softmax sol
sort split squeeze src srun srv ssd ssh stack start std step steps stop stream streams sub sum summit
svc svd swish sym syn sync sys tab tag tan tanh tar task tasks tcp tee tel tem tensor tensorflow tensors
test testing tests tex the tid til time tma tmp top topk tor torch torchrun torchtitan tot tpu trace
traces tracing train trainer training transformers transpose tree triton true try turing two txt type
types ubuntu ucc udp uid ukn undefined unique unk unknown unq unrolled unsqueeze url use user username
users usr utf val value values var vec vectorized venv ver version via view vim vit vllm vms vol volta
vpc vscode wan war warn warning wav web where whisper win wks work worker workers workspace world xla
xor yml zero zip
"""
COMMON: Final = frozenset(_WORDS.split())
