"""What is wrong with a spec, in one line that names file, line, key, the bad value and the legal ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import MINIMAL, write_spec

from search_spaces.errors import InputError
from sweeps.spec import load_spec, parse_spec
from sweeps.spec_schema import SweepSpec

CASES = [
    ("draft: d\nspace: {num_steps: [1]}\n", ":1: target: this key is required"),
    ("target: t\ndraft: d\n", ":1: space: this key is required"),
    ("target: t\ndraft: d\nspace:\n", ":3: space: the space is empty; give at least one of layout, num_steps"),
    ("target: t\ndraft: d\nspace: {}\n", ":3: space: the space is empty"),
    ("target: t\ndraft: d\nspace: [1]\n", ":3: space: [1] is not a mapping of keys"),
    ("target: 3\ndraft: d\nspace: {num_steps: [1]}\n", ":1: target: 3 is not text"),
    ("target: ''\ndraft: d\nspace: {num_steps: [1]}\n", ":1: target: '' is empty"),
    (
        "tarjet: t\ndraft: d\ntarget: t\nspace: {num_steps: [1]}\n",
        ":1: tarjet: unknown key; did you mean target? (legal: study, target,",
    ),
    ("study: a/b\n", ":1: study: 'a/b' is not a study's name"),
    ("study: ..\n", ":1: study: '..' is not a study's name"),
    ("engine: {device: gpu}\n", ":1: engine.device: 'gpu' is not legal here (legal: auto, cuda, cpu)"),
    ("engine: {device: cud}\n", ":1: engine.device: 'cud' is not legal here; did you mean cuda?"),
    ("engine: {kind: vllm}\n", ":1: engine.kind: 'vllm' is not legal here (legal: sglang, endpoint)"),
    ("engine: {ready_timeout_s: .nan}\n", ":1: engine.ready_timeout_s: nan is not a finite number"),
    ("engine: {ready_timeout_s: .inf}\n", ":1: engine.ready_timeout_s: inf is not a finite number"),
    ("engine: {ready_timeout_s: 0}\n", ":1: engine.ready_timeout_s: 0 must be greater than 0"),
    ("engine: {ready_timeout_s: true}\n", ":1: engine.ready_timeout_s: true is not a number"),
    ("engine: {ready_timeout_s: soon}\n", ":1: engine.ready_timeout_s: 'soon' is not a number"),
    ("engine: {sglang_version: 0.5}\n", ":1: engine.sglang_version: 0.5 is not a version"),
    ("engine: {kind: endpoit}\n", ":1: engine.kind: 'endpoit' is not legal here; did you mean endpoint?"),
    ("engine: {kind: [a]}\n", ":1: engine.kind: ['a'] is not legal here"),
    ("engine: 5\n", ":1: engine: 5 is not a mapping of keys"),
    ("engine: {kind: endpoint}\n", "engine.url: this key is required"),
    ("engine: {kind: endpoint, url: 5}\n", ":1: engine.url: 5 is not a URL"),
    ("engine: {kind: endpoint, url: 'x:1'}\n", ":1: engine.url: 'x:1' is not an http or https URL"),
    ("engine: {kind: endpoint, url: 'http://h:1', device: cpu}\n", ":1: engine.device: unknown key"),
    ("engine: {kind: endpoint, url: 'http://h:1', api_key: x}\n", "unknown key; did you mean api_key_env?"),
    (
        "engine: {kind: endpoint, url: 'http://h:1'}\nspace: {num_steps: [1, 3]}\n",
        ":2: space.num_steps: 2 values, but engine.kind: endpoint cannot change its server; give one",
    ),
    (
        "engine: {kind: endpoint, url: 'http://h:1'}\nspace: {layout: [[2, 4, 5]]}\n",
        ":2: space.layout: 2,4,5, but a running server feeds its draft what the draft's config says",
    ),
    (
        "engine: {kind: endpoint, url: 'http://h:1'}\nspace: {layout: [default]}\n",
        "legal with engine.kind: endpoint: shipped",
    ),
    ("workload: {request_rate: [2, 2.0]}\n", ":1: workload.request_rate: 2.0 is in the list twice"),
    (
        "engine: {kind: endpoint, url: 'http://h:1'}\nspace: {}\nsuspect: {}\n",
        ":3: suspect: another setting cannot be measured on a running server",
    ),
    (
        "engine: {kind: endpoint, url: 'http://h:1'}\nspace: {}\nbudget: {repeats: 2}\n",
        ":3: budget: repeats and baselines are launches",
    ),
    ("engine: {env: {A: 1}}\n", ":1: engine.env.A: 1 is not text; quote it: '1'"),
    ("engine: {env: {A-B: x}}\n", ":1: engine.env.A-B: 'A-B' is not the name of an environment variable"),
    (
        "engine: {args: {mem-fraction-static: 0.8}}\n",
        "'mem-fraction-static' is not a flag in snake_case; write mem_fraction_static",
    ),
    (
        "engine: {args: {a: null}}\n",
        ":1: engine.args.a: null is not a flag's value: text, a finite number, true or false; leave",
    ),
    ("engine: {args: {a: .nan}}\n", ":1: engine.args.a: nan is not a flag's value"),
    ("engine: {args: {a: {b: 1}}}\n", ":1: engine.args.a: {b: 1} is not a flag's value"),
    ("engine: {args: {a: [1]}}\n", ":1: engine.args.a: [1] is not a flag's value"),
    ("engine: {port: 30000}\n", ":1: engine.port: 30000 can serve one server at a time; needs cluster.max_parallel: 1"),
    ("engine: {port: 70000}\n", ":1: engine.port: 70000 must be at most 65535"),
    ("engine: {port: true}\n", ":1: engine.port: true is not a whole number"),
    ("engine: {device: cuda, start_method: fork}\n", ":1: engine.start_method: 'fork' works on the CPU only"),
    ("engine: {args: [a]}\n", ":1: engine.args: ['a'] is not a mapping"),
    ("engine: {args: {tp_size: 2}}\n", ":1: engine.args.tp_size: not allowed here; say `space.tp_size`"),
    ("space:\n  flags: {port: [1]}\n", "space.flags.port: not allowed here; say `engine.port`"),
    (
        "engine: {args: {x: 2}}\nspace:\n  flags: {x: [1]}\n",
        ":3: space.flags.x: this flag is also fixed in engine.args",
    ),
    ("cluster: {gpus: 2}\nspace: {tp_size: [1, 4]}\n", ":2: space.tp_size: 4 is more than cluster.gpus allows (2)"),
    ("cluster: {gpus: 2}\nsuspect: {tp_size: 8}\n", ":2: suspect.tp_size: 8 is more than cluster.gpus allows (2)"),
    ("cluster: {gpus: 0}\n", ":1: cluster.gpus: 0 is not a whole number of at least 1"),
    ("cluster: {gpus: true}\n", ":1: cluster.gpus: true is not a whole number of at least 1"),
    ("space:\n  num_steps: [1, true]\n", ":2: space.num_steps[1]: true is not a whole number of at least 1"),
    ("space:\n  num_steps: [1.0]\n", ":2: space.num_steps[0]: 1.0 is not a whole number"),
    ("space:\n  num_steps: ['3']\n", ":2: space.num_steps[0]: '3' is not a whole number"),
    ("space:\n  num_steps: 3\n", ":2: space.num_steps: 3 is not a list of values or a range; write [3]"),
    ("space:\n  num_steps: []\n", ":2: space.num_steps: the list is empty"),
    ("space:\n  num_steps: [2, 2]\n", ":2: space.num_steps: 2 is in the list twice"),
    ("space:\n  num_steps: {low: 3, high: 1}\n", ":2: space.num_steps: {low: 3, high: 1} is not a range"),
    ("space:\n  num_steps: {low: 1, hi: 3}\n", ":2: space.num_steps: {low: 1, hi: 3} is not a range: unknown key hi"),
    ("space:\n  num_steps: {low: 1}\n", ":2: space.num_steps: {low: 1} is not a range: high is missing"),
    ("space:\n  num_steps: {low: 1, high: 9, step: 0}\n", "is not a range: numbers with low <= high and step > 0"),
    ("space:\n  num_steps: {low: 1, high: .inf}\n", "is not a range"),
    ("space:\n  num_steps: {low: 1, high: 1000000}\n", "has 1000000 values; at most 10000"),
    ("space:\n  num_steps: {low: 0, high: 2}\n", ":2: space.num_steps[0]: 0 is not a whole number of at least 1"),
    ("space:\n  tp_size: [null]\n", ":2: space.tp_size[0]: null is not a whole number"),
    (
        "space:\n  layout: [0, 3, 7]\n",
        ":2: space.layout[0]: 0 is not a layout: a list of taps such as [2, 18, 33], `default` or `ship",
    ),
    ("space:\n  layout: [[-1, 2]]\n", ":2: space.layout[0]: [-1, 2] is not a layout"),
    ("space:\n  layout: [[]]\n", ":2: space.layout[0]: [] is not a layout"),
    ("space:\n  layout: [[true, 2]]\n", ":2: space.layout[0]: [true, 2] is not a layout"),
    ("space:\n  layout: [best]\n", ":2: space.layout[0]: 'best' is not a layout"),
    ("space:\n  layout: default\n", ":2: space.layout: 'default' is not a list"),
    ("space:\n  num_stepz: [1]\n", ":2: space.num_stepz: unknown key; did you mean num_steps?"),
    ("space:\n  catalog: nope\n", ":2: space.catalog: no ready space is called 'nope'"),
    (
        "space:\n  num_steps: {low: 1, high: 1000}\n  eagle_topk: {low: 1, high: 2000}\n",
        "the space has 2000000 settings; at most 1000000",
    ),
    ("workload: {prompts: 0}\n", ":1: workload.prompts: 0 is neither a count"),
    ("workload: {prompts: false}\n", ":1: workload.prompts: false is neither a count"),
    ("workload: {ignore_eos: yes}\n", ":1: workload.ignore_eos: 'yes' is neither true nor false"),
    ("workload: {temperature: -1}\n", ":1: workload.temperature: -1 must be at least 0"),
    ("workload: {concurrency: [0]}\n", ":1: workload.concurrency[0]: 0 is not a whole number"),
    ("workload: {concurrency: 8}\n", ":1: workload.concurrency: 8 is not a list of values or a range; write [8]"),
    ("objective: {concurrency: 3}\n", ":1: objective.concurrency: 3 is not measured (workload.concurrency: 1, 8)"),
    ("objective: {metric: speed}\n", ":1: objective.metric: 'speed' is not legal here (legal: output_throughput,"),
    (
        "objective: {metric: tpot_ms_p50}\nworkload: {stream: false}\n",
        "objective.metric: tpot_ms_p50 needs workload.stream: true",
    ),
    ("budget: {trials: 0}\n", ":1: budget.trials: 0 is not a whole number of at least 1"),
    ("budget: {retries: -1}\n", ":1: budget.retries: -1 must be at least 0"),
    (
        "search: {sampler: annealing}\n",
        ":1: search.sampler: 'annealing' is not legal here (legal: auto, surface, tpe, ",
    ),
    ("search: {storage: study.db}\n", ":1: search.storage: 'study.db' is not a URL"),
    (
        "search: {storage: 'sqlite:///study.db'}\n",
        "is relative to wherever the driver runs; write sqlite:////absolute/file.db",
    ),
    (
        "tracking: {uri: 'file:///x/mlruns'}\n",
        ":1: tracking.uri: 'file:///x/mlruns' is not a tracking server or database",
    ),
    ("tracking: {uri: './mlruns'}\n", ":1: tracking.uri: './mlruns' is not a tracking server or database"),
    ("tracking: {enabled: 1}\n", ":1: tracking.enabled: 1 is neither true nor false"),
    ("suspect: {num_steps: -1}\n", ":1: suspect.num_steps: -1 is not a whole number"),
    ("suspect: {tp: 1}\n", ":1: suspect.tp: unknown key"),
    ("- a\n", ":1: a spec is a mapping of keys, not ['a']"),
    ("", ":1: the spec is empty"),
    ("# nothing\n", ":1: the spec is empty"),
    ("a: b: c\n", ":1: not valid YAML: mapping values are not allowed"),
]
REST = {"target": "target: models/target\n", "draft": "draft: models/draft\n", "space": "space: {num_steps: [1]}\n"}


@pytest.mark.parametrize(("text", "message"), CASES, ids=[text.replace("\n", " ")[:60] for text, _ in CASES])
def test_bad_input_is_one_line_with_file_line_key_value_and_the_legal(tmp_path: Path, text: str, message: str) -> None:
    if "target: " not in text and "draft: " not in text and text.startswith(tuple(SweepSpec.model_fields)):
        text += "".join(line for key, line in REST.items() if f"{key}:" not in text)
    path = write_spec(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_spec(path)
    assert str(caught.value).startswith(f"{path}:")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_first_problem_in_the_file_is_told_and_the_others_are_counted(tmp_path: Path) -> None:
    path = write_spec(
        tmp_path, MINIMAL.replace("eagle_topk: [1]", "eagle_topk: [0]") + "budget: {trials: x, launchez: 2}\n"
    )
    with pytest.raises(InputError, match=r"case\.yaml:5: space\.eagle_topk\[0\]: 0 is not .* \(and 2 more\)$"):
        load_spec(path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["budget.trials=x"], "--set budget.trials=x: budget.trials: 'x' is not a whole number of at least 1"),
        (["budget.trails=3"], "--set budget.trails=3: budget.trails: unknown key; did you mean trials?"),
        (["budget={trials: 0}"], "--set budget={trials: 0}: budget.trials: 0 is not"),
        (["study.name=x"], "--set study.name=x: study.name"),
        (["target.x=1"], "--set target.x=1: target is not a mapping of keys"),
        (["budget.trials"], "--set budget.trials: write key.path=value"),
        (["=3"], "--set =3: write key.path=value"),
        (["budget..trials=3"], "--set budget..trials=3: write key.path=value"),
        (["budget.trials=[1"], "--set budget.trials=[1: not valid YAML"),
        (["budget.trials=1", "budget.trials=0"], "--set budget.trials=0: budget.trials: 0"),
        (["space.num_steps.0=3"], "--set space.num_steps.0=3: space.num_steps is not a mapping of keys"),
    ],
)
def test_bad_overrides_name_the_option(tmp_path: Path, overrides: list[str], message: str) -> None:
    path = write_spec(tmp_path)
    with pytest.raises(InputError) as caught:
        load_spec(path, overrides)
    if overrides != ["study.name=x"]:
        assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["target", "draft"])
def test_a_missing_model_asks_for_an_absolute_path(tmp_path: Path, key: str) -> None:
    path = write_spec(tmp_path)
    for place in ("models/nowhere", "./nowhere", "/nowhere/at/all"):
        with pytest.raises(
            InputError, match="give an absolute path that exists on the machine that runs the sweep"
        ) as caught:
            load_spec(path, [f"{key}={place}"])
        assert str(caught.value).startswith(f"--set {key}={place}: {key}: '")
        assert parse_spec(path, [f"{key}={place}"])


def test_a_missing_prompt_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"workload\.prompts: '.*/none\.jsonl': no such file"):
        load_spec(write_spec(tmp_path), ["workload.prompts=none.jsonl"])


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_bytes(b"\xff\xfe\x00")])
def test_an_unreadable_spec_is_one_line(tmp_path: Path, make: object) -> None:
    path = tmp_path / "s.yaml"
    make(path)  # type: ignore[operator]
    with pytest.raises(InputError, match=r"s\.yaml: (cannot be read|not UTF-8)"):
        load_spec(path)


def test_a_misspelt_key_is_named_before_the_one_it_should_have_been(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("target: a\ndraft: b\nspce: {num_steps: [1]}\n")
    with pytest.raises(InputError, match=r"spec\.yaml:3: spce: unknown key.*space"):
        parse_spec(path)
