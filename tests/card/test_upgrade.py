# SPDX-License-Identifier: Apache-2.0
"""Upgrades of cards, and cards found in the wild."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from cclbench.card import UpgradedCard, card_schema, load_card, upgrade_card, validate_card
from cclbench.card.json_schema import value_misfit
from cclbench.card.read import parse_card
from cclbench.ground.errors import CheckFailed, InputError, UsageError

HERE = Path(__file__).parent
V1 = (HERE / "version1.yaml").read_text().partition("\n")[2]


def upgraded(tmp_path: Path, text: str, name: str = "tiny-run.yaml") -> tuple[dict[str, Any], UpgradedCard]:
    card = tmp_path / name
    card.write_text(text)
    result = upgrade_card(card)
    return dict(parse_card(result.text, "x.yaml").value), result


def warned(result: UpgradedCard) -> dict[str, str]:
    return {warning.path: warning.message for warning in result.warnings}


def test_every_field_finds_its_home(tmp_path: Path) -> None:
    card, result = upgraded(tmp_path, V1)
    assert result.problems == ()
    assert card == yaml.safe_load((HERE / "upgraded.yaml").read_text())


def test_what_has_no_home_is_named_with_line_and_value(tmp_path: Path) -> None:
    _, result = upgraded(tmp_path, V1)
    expected = [(None, ""), (12, "workload.model.granularity"), (49, "metric_source.traces")]
    assert [(warning.line, warning.path) for warning in result.warnings] == expected
    messages = warned(result)
    assert messages["workload.model.granularity"] == '"layer" has no home in version 2; left out'
    assert "Model-executor.communication_library.env.NCCL_NOTHING" in messages[""]


def test_an_executor_inside_the_workload_is_found(tmp_path: Path) -> None:
    head, executor = V1.split("Model-executor:\n")
    executor, tail = executor.split("metric_source:")
    nested = "  Model-executor:\n" + "".join(f"  {line}\n" for line in executor.splitlines())
    card, result = upgraded(tmp_path, f"{head}{nested}metric_source:{tail}")
    assert card["parallelism"]["tp"] == 2
    assert card["software"]["communication"]["environment"]["NCCL_DEBUG"] == "INFO"
    assert result.problems == ()


@pytest.mark.parametrize(
    ("old", "new", "path", "reason"),
    [
        ("batch_size: 4", "batch_size: [1, 2]", "workload.data.batch_size", "[1, 2] is several batch sizes"),
        ("scope: global", "scope: per_gpu", "workload.data.batch_size", "not global"),
        ("nvidia_a100_40gb", "nvidia_a100", "workload.hardware.xpu_spec.model",
         "either nvidia-a100-sxm-40gb or"),
        ("nvidia_a100_40gb", "abacus", "workload.hardware.xpu_spec.model", "no accelerator of the catalog"),
        ("count_per_node: 4", "count_per_node: 16", "workload.hardware.xpu_spec.count_per_node",
         "what a node holds"),
        ("[200, 2400]", "[200, 2000]", "workload.hardware.network_topo.bandwidth_gbps", "2000 for scale-up"),
        ("[200, 2400]", "fast", "workload.hardware.network_topo.bandwidth_gbps", '["fast"] has 1 of the two'),
        ("topology: slingshot", "topology: cloth", "workload.hardware.network_topo.topology", "neither"),
        ("precision: bf16", "precision: bf17", "workload.model.precision", "did you mean"),
        ("seq_len: 128", "seq_len: long", "workload.data.seq_len", "must be a whole number"),
        ("trace_url: https://example.org/trace", "trace_url: /data/x", "trace_url", "does not fit"),
        ("iteration: 5", "iteration: many", "workload.model.iteration", '"many" has no home'),
        ("pp: 2", "pp: 1", "Model-executor.model_plan_parallelization.pp_mb", "without pipeline stages"),
        ("name: NCCL", "name: NCCL audit shim", "Model-executor.communication_library.name", "does not fit"),
        ("hf_url:", "num_params: 5\nhf_url:", "num_params", "5 has no home"),
        ("iteration: 5", "iteration: 5\n    num_layers: 3", "workload.model.model_arch.num_layers",
         "3 already"),
    ],
)  # fmt: skip
def test_a_doubtful_value_is_left_out(tmp_path: Path, old: str, new: str, path: str, reason: str) -> None:
    assert V1.count(old) == 1
    _, result = upgraded(tmp_path, V1.replace(old, new))
    assert reason in warned(result)[path]


def test_a_doubt_stands_at_the_gap_too(tmp_path: Path) -> None:
    _, result = upgraded(tmp_path, V1.replace("[200, 2400]", "[2400, 200]"))
    gaps = [line for line in result.text.splitlines() if "bandwidth: " in line]
    assert len(gaps) == 2
    assert all("[2400, 200] has scale-out above scale-up" in gap for gap in gaps)


def test_a_card_with_a_fault_comes_with_the_reason(tmp_path: Path) -> None:
    card, result = upgraded(tmp_path, V1.replace("total_count: 8", "total_count: 16"))
    (problem,) = result.problems
    assert problem.path == "parallelism"
    assert "= 8, but hardware.count is 16" in problem.message
    assert card["hardware"]["count"] == 16
    _, result = upgraded(tmp_path, V1.replace("  A run.\n", ""))
    assert [problem.path for problem in result.problems] == ["description"]
    assert "\n# description: " in result.text


@pytest.mark.parametrize(
    ("name", "identity"),
    [("a.yaml.yaml", "a"), ("A_b-1.0.yml", "A_b-1.0"), ("my card (2).yaml", "my-card-2-"), ("..x.yaml", "x")],
)
def test_the_id_comes_from_the_files_name(tmp_path: Path, name: str, identity: str) -> None:
    card, result = upgraded(tmp_path, V1, name)
    assert card["id"] == identity
    assert result.problems == ()


NONE = "is no version 1 card"


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        *((text, CheckFailed, NONE) for text in ("version: 3\n", "version: '1'\n", "name: x\n")),
        ("version: one\nworkload: {}\n", CheckFailed, NONE),
        ("version: 2\nid: tiny-run\n", UsageError, "version 2 already"),
        (V1 + "  \nversion: 1\n", CheckFailed, r":51: version: is there twice, first in line 1"),
        ("version: 1\nworkload:\n  a: 1\ntrace_url: a: b\n", InputError,
         r"tiny-run\.yaml:4:.* mapping values are not allowed here"),
    ],
    ids=range(7),
)  # fmt: skip
def test_no_version_1_card_is_refused(tmp_path: Path, text: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        upgraded(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["version: 1\n", "workload: []\n", "version: 1\nworkload: 3\nModel-executor: [1, {a: 2}]\n"]
)
def test_a_hollow_card_is_a_list_of_gaps(tmp_path: Path, text: str) -> None:
    _, result = upgraded(tmp_path, text)
    assert {"description", "workload"} <= {problem.path for problem in result.problems}


def parts(part: Mapping[str, Any], name: str = "card") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every property, item and free value of the schema."""
    yield name, part
    for key, below in part.get("properties", {}).items():
        yield from parts(below, f"{name}.{key}")
    if "items" in part:
        yield from parts(part["items"], f"{name}[]")
    if isinstance(part.get("additionalProperties"), Mapping):
        yield from parts(part["additionalProperties"], f"{name}.*")


PARTS = dict(parts(card_schema()))


def test_the_schema_is_valid_and_every_part_helps_an_editor() -> None:
    Draft7Validator.check_schema(dict(card_schema()))
    assert card_schema()["$schema"] == "http://json-schema.org/draft-07/schema#"
    for name, part in PARTS.items():
        assert part["title"].strip(), name
        assert part["description"].endswith("."), name
        assert part["type"] != "object" or "additionalProperties" in part, name
        unit = "Unit: " in part["description"] or name.endswith("[]") or name == "card.version"
        assert part["type"] != "integer" or unit, name
        assert name == "card" or part["examples"], name
        for example in part.get("examples", []):
            Draft7Validator(dict(part)).validate(example)
            is_value = name != "card" and "properties" not in part and "[]" not in name and "*" not in name
            assert not is_value or fits(example, name), name


def fits(example: object, name: str) -> bool:
    return value_misfit(example, name.removeprefix("card.")) is None


Change = Callable[[str, str], Path]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("version: 2\n", "version: 3\n", "1: version: is 3 but must be 2"),
        ("id: tiny\n", "", "1: id: is missing: name of the data point"),
        ("A tiny run.", '"  "', '3: description: is "  ", which does not fit'),
        ("  phase: training\n", "", "4: workload.phase: is missing: training, inference or serving"),
        ("phase: training", "phase: trainig", '5: workload.phase: is "trainig"; did you mean training'),
        ("precision: bf16", "precision: 16",
         "8: workload.precision: is 16 but must be text; put it in quotes"),
        ("moe: true", "moe: yes", '6: workload.model.moe: is "yes" but must be true or false'),
        ("layers: 2", "layers: two", '7: workload.model.layers: is "two" but must be a whole number'),
        ("global: 8", "global: 0", "10: workload.batch.global: is 0 but must be at least 1"),
        ("global: 8", "global:", "10: workload.batch.global: is empty; fill it in or delete the line"),
        ("global: 8", "global: [8, 16]", "10: workload.batch.global: is [8, 16] but must be a whole number"),
        ("global: 8", "global: true", "10: workload.batch.global: is true but must be a whole number"),
        ("global: 8", "globl: 8", "10: workload.batch.globl: unknown key; did you mean global?"),
        ("count: 16", "tp: 16", "14: hardware.tp: unknown key; it belongs at parallelism.tp"),
        ("count: 16", "zzz: 16", "14: hardware.zzz: unknown key; known: accelerator, calibration, count"),
        ("nvidia-h100-sxm", "NVIDIA H100", '13: hardware.accelerator: is "NVIDIA H100", which does not fit'),
        ("450 GB/s", "450 GBps",
         "16: hardware.scale_up.bandwidth: '450 GBps' has no known unit of bandwidth"),
        ("450 GB/s", "450", "16: hardware.scale_up.bandwidth: is 450 but must be text"),
        ("400 Gb/s", "0 Gb/s", "17: hardware.scale_out.bandwidth: '0 Gb/s' is zero"),
        ('version: "2.27"', "version: 2.27", "22: software.communication.version: is 2.27 but must be text"),
        ("{NCCL_DEBUG: INFO}", "{NCCL_DEBUG: 1}", "environment.NCCL_DEBUG: is 1 but must be text"),
        ("{NCCL_DEBUG: INFO}", "{NCCL DEBUG: x}",
         "environment.NCCL DEBUG: is not the name of an environment variable"),
        ("ranks: [0]", "ranks: []", "32: evidence.traces[0].ranks: is empty"),
        ("ranks: [0]", "ranks: [0, 0]",
         "32: evidence.traces[0].ranks: is [0, 0], which names something twice"),
        ("ranks: [0]", "ranks: [-1]", "32: evidence.traces[0].ranks[0]: is -1 but must be at least 0"),
        ("format: kineto", "format: Kineto",
         '31: evidence.traces[0].format: is "Kineto", which does not fit'),
        ("id: tiny\n", 'id: "tiny\\n"\n', '2: id: is "tiny\\n", which does not fit'),
        ("id: tiny\n", "id: ../tiny\n", '2: id: is "../tiny", which does not fit'),
        ("evidence:\n", "evidence: {}\nproof:\n", "29: proof: unknown key"),
        ("parallelism:\n", "parallelism: []\nx:\n", "24: parallelism: is [] but must be a mapping"),
    ],
)  # fmt: skip
def test_a_departure_has_line_path_and_remedy(changed: Change, old: str, new: str, expected: str) -> None:
    card = changed(old, new)
    errors = [str(problem) for problem in validate_card(card) if problem.severity == "error"]
    assert any(expected in error for error in errors), errors
    assert all(error.startswith(f"{card}:") for error in errors)


def test_all_problems_come_at_once_in_the_order_of_the_file(changed: Change) -> None:
    card = changed(
        "  precision: bf16\n", "  precision: bf61\n  presicion: bf16\n  phase: serving\n  steps: x\n"
    )
    with pytest.raises(CheckFailed) as caught:
        load_card(card)
    expected = [["8", "workload.precision"], ["9", "workload.presicion"], ["10", "workload.phase"]]
    expected += [["11", "workload.steps"]]
    assert [
        line.removeprefix(f"{card}:").split(": ")[0:2] for line in str(caught.value).splitlines()
    ] == expected


def test_a_card_is_valid_as_it_is_and_sent_to_upgrade_as_version_1(complete: Path, changed: Change) -> None:
    assert validate_card(complete) == []
    (problem,) = validate_card(changed("version: 2\n", "version: 1\n"))
    assert "cclbench card upgrade" in problem.message


def test_hostile_keys_are_printed_safely(changed: Change) -> None:
    card = changed("id: tiny\n", 'id: tiny\n"\\u202Eevil\\u0007": 1\n')
    errors = [str(problem) for problem in validate_card(card)]
    assert any("\\u202eevil\\x07: unknown key" in error for error in errors)
    assert all(error.isprintable() for error in errors)


# Lines and reasons by PyYAML's own safe_load on the same files.
BROKEN = {
    "Mixtral8x7B-vllmEP4-Perlmutter_defaultall2all_32_8192_-group12.yaml": (":18:5:", "starts in line 17"),
    "llama-3.1-8b-torchtitan-dp_2-tp_2-perlmutter_group_5.yaml": (
        ":10:48:",
        "mapping values are not allowed",
    ),
    "llama-3.1-8b-torchtitan-dp_4-perlmutter_group_5.yaml": (":10:48:", "mapping values are not allowed"),
}


@pytest.fixture(scope="module")
def wild(test_data: Path) -> dict[Path, dict[str, Any]]:
    """Every card that is YAML, as PyYAML reads it."""
    cards = {}
    for path in sorted((test_data / "ccl_bench" / "cards").glob("*.yaml")):
        if path.name.rpartition("__")[2] not in BROKEN or "backlog" in path.name:
            cards[path] = yaml.safe_load(path.read_text("utf-8"))
    return cards


def test_the_broken_ones_name_line_and_reason(test_data: Path) -> None:
    found = 0
    for path in (test_data / "ccl_bench" / "cards").glob("*.yaml"):
        place = BROKEN.get(path.name.rpartition("__")[2])
        if place is None or "backlog" in path.name:
            continue
        found += 1
        with pytest.raises(InputError) as caught:
            upgrade_card(path)
        line, reason = place
        assert f"{path}{line}" in str(caught.value)
        assert reason in str(caught.value)
    assert found == 3


def count_matches(card: Mapping[str, Any]) -> bool:
    """Whether the degrees multiply to the count, worked out from the version 1 card."""
    executor = card.get("Model-executor") or card["workload"].get("Model-executor")
    if executor is None:
        return True
    degrees = executor["model_plan_parallelization"]
    product = 1
    for name in ("dp_replicate", "dp_shard", "tp", "pp", "cp"):
        product *= degrees[name]
    if executor["framework"]["name"] == "maxtext":
        product *= degrees["ep"]
    return bool(product == card["workload"]["hardware"]["xpu_spec"]["total_count"])


def test_each_upgrades_or_is_refused_for_exactly_its_faults(wild: Mapping[Path, dict[str, Any]]) -> None:
    outcomes: Counter[str] = Counter()
    for path, card in wild.items():
        expected = set()
        if not card["description"]:
            expected.add("description")
        if not count_matches(card):
            expected.add("parallelism")
        faults = {problem.path for problem in upgrade_card(path).problems}
        assert faults - {"parallelism.ep"} == expected, path.name
        outcomes["refused" if faults else "valid"] += 1
    assert outcomes == {"valid": 54, "refused": 16}


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from leaves(below, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def test_no_field_is_lost_in_silence(wild: Mapping[Path, dict[str, Any]]) -> None:
    """Every value of every card is in the new card, or its path is in a warning."""
    checked = 0
    for path, card in wild.items():
        result = upgrade_card(path)
        text = repr(parse_card(result.text, "x.yaml").value).lower()
        told = {warning.path for warning in result.warnings}
        for warning in result.warnings:
            if warning.path == "":
                told |= set(warning.message.partition(": ")[2].split(", "))
        for key, value in leaves(card):
            checked += 1
            if key in told or key == "version":
                continue
            if key.endswith(("xpu_spec.type", "batch_size_scope", "model.epochs")):
                continue  # said by the accelerator's id, by `global`, and by the product in `steps`
            last = key.rpartition(".")[2]
            values = value if isinstance(value, list) else [value]
            carried = [str(v).strip().lower() for v in values]
            if last == "model":
                carried = ["google-tpu-v6e" if v == "tpu_v6e" else "nvidia-a100-sxm-40gb" for v in carried]
            if last == "topology" and "torus" in carried[0]:
                carried = ["ici-v6e"]  # which joins these accelerators
            if last == "name":
                carried = [v.replace("++", "pp").removesuffix("-0.1.0") for v in carried]
            assert all(v[:40] in text for v in carried), (path.name, key, value)
    assert checked > 2000


def test_no_bandwidth_is_guessed(wild: Mapping[Path, dict[str, Any]]) -> None:
    """Only pairs whose hardware has those rates are taken over; all others are reported with their value."""
    taken: Counter[tuple[str, str]] = Counter()
    for path, card in wild.items():
        topology = card["workload"].get("hardware", {}).get("network_topo")
        if topology is None:
            continue
        result = upgrade_card(path)
        hardware = parse_card(result.text, "x.yaml").value.get("hardware", {})
        sides = [hardware.get(side, {}).get("bandwidth", "gap") for side in ("scale_out", "scale_up")]
        taken[str(topology["bandwidth_gbps"]), " ".join(sides)] += 1
        reported = any(warning.path.endswith("bandwidth_gbps") for warning in result.warnings)
        assert reported == ("gap" in sides), path.name
    assert taken == {
        ("[200, 2400]", "200 Gb/s 2400 Gb/s"): 33, ("[200, 2000]", "200 Gb/s gap"): 3,
        ("[200, 600]", "200 Gb/s gap"): 2, ("[200, 6400]", "gap gap"): 2, ("['N/A', 800]", "gap gap"): 8,
        ("['N/A', 3200]", "gap 3200 Gb/s"): 1, ("['TBD', 'TBD']", "gap gap"): 8, ("[600]", "gap gap"): 8,
    }  # fmt: skip
