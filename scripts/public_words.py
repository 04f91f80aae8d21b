# SPDX-License-Identifier: Apache-2.0
"""Collect the words of public names that data points may carry, for `cclbench/contribute/redaction`.

`public_words.py --python /path/to/site-packages --traces traces $CCLBENCH_TEST_DATA` prints words.txt (the
repository's with PyTorch 2.14, JAX 0.10 and the traces in SOURCES.md of the second folder): parts of words

- of the names that cclbench itself knows: keys, columns, rules and operators in the literals of its readers,
  classification and cost models,
- of the operators that PyTorch registers (`--python` has a torch),
- of kernels and CUDA calls in public traces, if their names are in a namespace of a public library,
- whole words of the names of the catalog's machines,
- `MORE`, which none of these has.

A word is a run of letters and digits, its parts begin with capitals: `TensorList` has `tensor` and `list`.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import re
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import yaml

from cclbench.formats.xplane.proto import event_metadata, find_planes, parse_plane, stat_names

LISTING: Final = """
import torch
types = "TensorList ScalarList GenericList Object String all_to_allv"
print(*torch._C._jit_get_all_schemas(), types, *dir(torch.optim), *dir(torch.nn), sep="\\n")
"""
ROOT: Final = Path(__file__).resolve().parents[1]
KNOWN: Final = (
    *("classify", "operators", "normalize", "formats", "capture", "torch", "jax", "ground/schema.py"),
    *("ground/evidence_schema.py", "machine.py"),
)
"""Parts of cclbench whose literals are names that it reads."""
MORE: Final = """
1c11 2021 910b 910c a10 a100 a10g a16w16 a2a a30 a40 a4w4 a800 a8w8 abd ac2g access acl aclnn aclop aclrt
adapt address addressable ag agg aic aicore aiv al allowed amd and aot ar as assigned at atoa atod
aunaryfunctor autotune av awaitable b100 b200 b2b b300 bf bitmatrix bk0mk1 bk0nk1 bn bprop bucket
bunaryfunctor bw by bytecode bz c10 c10d c128 c2c c2r call canonicalization capacity cbid cc cd cga chdir
chmod chown cid ck cl claude close closedir cloud cnhw cnt cnt8 combined command commands compacted
concluded conda congruous coopa coopb could counting cpus cq creat created cshuffle cu cumem d2d d2h d884
damax db deepspeed descriptor device discovered dispatcher dkb dl dmb do drop dropcache dropout dsa dscd
dsec dtoa dtod dup dup2 dynamo e2e e2el e2m1fn e4m3fn e4m3fnuz e5m2fnuz echo ediv efficientzerotensor
enqueued environment eq eu ev ex exclusive exec executions exit f2f fb fclose fcntl fdatasync fdopen
fdopendir fetch fflush fi find float8e4m3 float8e5m2 flush fn folder fop fopen fops found fp fractal
fragment freopen from fseek fseeko fstat fstatat fsync ftell ftruncate fw fxstat fxstatat gaudi gaudi2
gaudi3 gb200 gb300 gddr6 gdr gdrdma ge geforce gen ggml gh200 ghz gib git gkgs gl gpt gpus gres gridwise gt
gtx gz h h100 h20 h200 h2d h800 hbm2 hbm2e hbm3 hbm3e hccs headers headobj hierarchy highres home host ht
htoa htod hub hw hwid hxw i16832 i8816 ib ibext id idx if im2col im2d im3d im3d2col in inferentia
initialized instinct invoke io ip ipc is iter iters jf k kargs kd key khz kib kjt kv l4 l40 l40s le library
lifecycle line linear link list listobj ll ll128 ll4mi lm lns loaded lookup lr lseek lstat lt lu lxstat
lxstat64 m00 m01 map mask mhz mi mi100 mi210 mi250 mi250x mi300a mi300x mi325x mi350x mi355x mi50 mib
mkbuckets mkdir mkdirat mkdirs mkfifo mknod mkstemp mm mmap module mpirun ms msync multi multidel
multiplicand multiprocessor munmap nchw nd ne net next ngpus nhwckrsc nn nnodes nnt no nocast noop not np
nproc npu npus ns nt ntasks nthread number nv nvidia nvl occupancy of ogs on op open openat opendir or out
p100 p2p p50 p90 p95 p99 partials partition pb pcie people per pfw pg pip pipe pitch pj pjrt plugin ppo
predicated pregraph problem process processing prologue ps pt ptop py python qk qr quadro queued r2c radeon
raked rblock rd readdir readlink redacted redistribute region registers regs regular relu6 rematerialization
remove rename rewind rewinddir rkb rmb rmbuckets rmdir rmdirs rmfiles rmobjects rmsnorm room routing rows
rpd rs rsec rt rtx rx s2s saves sbatch seekdir sequence setvbuf sgl sh sharp shm silu single sio sl slinky
sm smem so specialization splits sqe srun ssh stable stack stages stat statdirs stateless statvfs stdin stem
successfully suggested sweep swiglu sxm sxm2 sxm3 sxm4 sxm5 sxm6 symlink synchronization t t1r1s1 t4 tail tc
telldir templated tesla tf tfloat th the theoretical threefry ticks tilesize tmpfile tn to token torchrun
tpu tr trainium trait traits triton trn1 trn2 truncate tt tx umask unalign undefined unknown unlink unlinkat
up us user usermarker utf utime v v100 v2 v3 v4 v5e v5p v6e validation via vmid vocab vocabulary wait warmup
warpgroupsize warpsize waves web wgmma wise with wkb wmb wmma word workgroup wr wrapper wrtn wsec x6 xblock
xdl xdlops xstat yblock zblock
"""
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MANGLED: Final = re.compile(r"\d+[A-Za-z]{3,}|.*(?:EEE|[IE]Li|NS_|NS\d|ELb)")
PRIVATE: Final = (
    "account apikey email job login mac owner password phone project room secret ssn uuid username"
)
"""Words that name what is nobody else's: a field that is called so is not published."""
HEAD: Final = """\
# Parts of the words that `public_names` publishes, in lower case; made by scripts/public_words.py from the
# literals of cclbench's readers and rules, the catalog's machines, operators of PyTorch 2.14 and JAX 0.10,
# kernels of public libraries in traces/ and in the traces that SOURCES.md of the tests' evidence lists.
"""
WORD: Final = re.compile(r"[A-Za-z0-9]+")
_SHORTEST, _LONGEST = 3, 14
"""Shorter parts are almost any pair of letters: only those of `MORE` are public."""
_KERNEL: Final = re.compile(
    rb'"cat"\s*:\s*"(?:kernel|Kernel|gpu_memcpy|gpu_memset|cuda_runtime|cuda_driver|cpu_op)"[^{}]*?'
    rb'"name"\s*:\s*("(?:[^"\\]|\\.)*")'
)
_PUBLIC: Final = re.compile(
    r"at::|aten::|c10|nccl|rccl|cutlass|cublas|cudnn|cub::|thrust::|triton_(?:red|poi|per|tem|mm|bmm|for|mix)_"
    r"|ampere_|volta_|hopper|blackwell|turing_|maxwell_|sm\d\d_|nvjet|flash::|flash_fwd|flash_bwd|fmha|vllm::"
    r"|Cijk_|ck::|ck_tile|miopen|hip|cuda|cu[A-Z]|Mem(?:cpy|set)|xla|gemm|deep_ep|flashinfer|transformer_engine"
    r"|marlin|autograd::|torch::|profiler::|Backward\d|apex|rocblas|hipblas"
)


def literals(path: Path) -> Iterator[str]:
    """Texts of a module except documentation and messages, and its fields' names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_out = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.JoinedStr):
            left_out |= {id(part) for part in ast.walk(node)}
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(id(node.value))
        if isinstance(node, ast.Call) and re.search(r"[Ee]rror|append", ast.unparse(node.func)):
            left_out |= {id(part) for part in ast.walk(node)}
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    yield part.target.id
    for node in ast.walk(tree):
        if id(node) in left_out or not isinstance(node, ast.Constant):
            continue
        text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        if isinstance(text, str) and not _is_prose(text):
            yield re.sub(r"\\[a-zA-Z]", " ", text)


def _is_prose(text: str) -> bool:
    """Whether a text is a sentence, such as a hint, and no name, pattern or list of them."""
    plain = re.fullmatch(r"[A-Za-z0-9 ,;:.'`()/%=-]+", text) is not None
    return plain and len(text.split()) > 3 and bool(re.search(r"[;:,]|\.$|\b(?:the|of|a|is|and|to)\b", text))


def kernel_names(path: Path) -> Iterator[str]:
    """Names of kernels, copies, operators and CUDA calls in a trace."""
    if path.suffix == ".sqlite":
        with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True) as base:
            base.text_factory = lambda raw: raw.decode(errors="replace")
            for table, sql in base.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                if re.match(
                    r"CUPTI|NVTX|StringIds|ENUM|TARGET_INFO|META_DATA|GPU_|NET_|NIC_|COMPOSITE|OSRT|THREAD",
                    table,
                ):
                    yield f"cuda {table} " + re.sub(r"--[^\n]*", "", sql)
            for (name,) in base.execute("SELECT value FROM StringIds"):
                yield name
        return
    if path.name.endswith(".xplane.pb"):
        for plane in find_planes(path).planes:
            message = parse_plane(path, plane)
            yield from (
                f"xla {name}"
                for name in stat_names(message).values()
                if not re.search(r"[/$<]|jit|\.py", name)
            )
            for metadata in event_metadata(message).values():
                if not re.search(r"[/$<]|jit|\.py", metadata.name.partition(" = ")[0]):
                    yield f"xla {metadata.name}"
            yield from (
                f"xla {stat.str_value}"
                for stat in message.stats
                if stat_names(message).get(stat.metadata_id) in ("device_type_string", "device_vendor")
            )
            content = path.read_bytes()
            yield from (
                f"xla {(key or value).decode()}"
                for key, value in set(re.findall(rb'"(\w+)":|"([A-Z_]{3,})"', content))
            )
        return
    content = path.read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    for raw in set(_KERNEL.findall(content)):
        yield str(json.loads(raw, strict=False))


def words_of(texts: Iterable[str]) -> set[str]:
    """Words of letters, with digits, that are no numbers and not longer than a name's part."""
    words = (word for text in texts for word in WORD.findall(text))
    return {word for word in words if len(word) <= 40 and not word.isdigit() and word[:2] != "0x"}


def main() -> None:
    """Print the words."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, required=True, help="site-packages with torch and jax")
    parser.add_argument("--traces", type=Path, nargs="*", default=[], help="public traces")
    asked = parser.parse_args()
    files = [file for part in KNOWN for file in _modules(ROOT / "cclbench" / part)]
    words = words_of(text for file in files for text in literals(file))
    listed = yaml.safe_load((ROOT / "tests" / "classify" / "kernel_names.yaml").read_text(encoding="utf-8"))
    words |= words_of(
        name
        for kinds in listed.values()
        for names in kinds.values()
        for all_ in names.values()
        for name in all_
    )
    machines = set[str]()
    for machine in (ROOT / "cclbench" / "hardware" / "data").glob("*.yaml"):
        described = yaml.safe_load(machine.read_text(encoding="utf-8"))
        machines |= words_of([described["id"], *map(str, described.get("names", []))])
    interpreter = asked.python.parents[2] / "bin" / "python"
    listed = subprocess.run([interpreter, "-c", LISTING], capture_output=True, text=True, check=True).stdout
    words |= words_of(listed.splitlines())
    words |= {f"{_camel_case(name)}Backward" for name in re.findall(r"aten::(\w+)", listed)}
    words |= words_of(
        name
        for part in ("lax", "interpreters", "pjit.py", "nn", "numpy")
        for file in _modules(asked.python / "jax" / "_src" / part)
        for name in re.findall(r"""['"]([a-z][a-z0-9_]{2,30})['"]""", file.read_text(encoding="utf-8"))
    )
    for path in sorted(file for folder in asked.traces for file in folder.rglob("*")):
        if "corrupt" in path.parts:
            continue
        if path.name.endswith((".xplane.pb", ".json", ".json.gz", ".sqlite")) and path.stat().st_size < 300e6:
            words |= words_of(name for name in kernel_names(path) if _PUBLIC.search(name))
    parts = {
        part.lower()
        for word in words
        if not _MANGLED.match(word)
        for part in _PART.findall(word)
        if _SHORTEST <= len(part) <= _LONGEST
    }
    machines = {word.lower() for word in machines if len(word) >= _SHORTEST}
    public = (parts | machines | set(MORE.split())) - set(PRIVATE.split())
    print(HEAD + textwrap.fill(" ".join(sorted(public)), 108))


def _camel_case(name: str) -> str:
    """As autograd names the node of an operator."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _modules(place: Path) -> list[Path]:
    return [place] if place.suffix == ".py" else sorted(place.rglob("*.py"))


if __name__ == "__main__":
    sys.exit(main())
