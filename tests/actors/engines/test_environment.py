from __future__ import annotations

from pathlib import Path

import pytest
from server_specs import fake_spec
from tiny_models import TinyPair

from actors.engines.environment import Environment, bind_cores, build_environment, find_poison, is_simulating
from actors.engines.server_spec import ServerSpec
from results.failures import Failure
from search_spaces.errors import InputError


@pytest.fixture
def cuda(tiny_pair: TinyPair, tmp_path: Path) -> ServerSpec:
    """A group that holds GPUs 6 and 7."""
    return fake_spec(tiny_pair, tmp_path, device="cuda", start_method="spawn", device_ids=("6", "7"))


def built(spec: ServerSpec, inherited: dict[str, str], world_size: int = 2) -> dict[str, str]:
    environment = build_environment(spec, inherited, world_size, Path("scratch"))
    assert isinstance(environment, Environment)
    return dict(environment.variables)


def refused(spec: ServerSpec, inherited: dict[str, str], world_size: int = 2) -> Failure:
    failure = build_environment(spec, inherited, world_size, Path("scratch"))
    assert isinstance(failure, Failure)
    return failure


@pytest.mark.parametrize("inherited", [{}, {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}])
@pytest.mark.parametrize("noset", [{}, {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}])
def test_gpus_come_from_what_the_group_holds_whatever_ray_left_in_the_environment(
    cuda: ServerSpec, inherited: dict[str, str], noset: dict[str, str]
) -> None:
    assert built(cuda, inherited | noset)["CUDA_VISIBLE_DEVICES"] == "6,7"


@pytest.mark.parametrize(
    ("held", "world_size", "said"),
    [
        ((), 2, "holds 0 GPUs (none), but tp x pp needs exactly 2"),
        (("6",), 2, "holds 1 GPUs (6), but tp x pp needs exactly 2"),
        (("6", "7"), 1, "holds 2 GPUs (6, 7), but tp x pp needs exactly 1"),
        (("6", "6"), 2, "holds a GPU twice"),
    ],
)
def test_no_launch_on_more_or_fewer_gpus_than_the_server_takes(
    tiny_pair: TinyPair, tmp_path: Path, held: tuple[str, ...], world_size: int, said: str
) -> None:
    spec = fake_spec(tiny_pair, tmp_path, device="cuda", start_method="spawn", device_ids=held)
    failure = refused(spec, {}, world_size)
    assert (failure.phase, failure.kind) == ("placement", "bad_config")
    assert said in failure.message


def test_uuids_of_gpus_are_passed_as_they_are(tiny_pair: TinyPair, tmp_path: Path) -> None:
    ids = ("GPU-8932f937-d72c", "MIG-22d0ed6f")
    spec = fake_spec(tiny_pair, tmp_path, device="cuda", start_method="spawn", device_ids=ids)
    assert built(spec, {})["CUDA_VISIBLE_DEVICES"] == "GPU-8932f937-d72c,MIG-22d0ed6f"


@pytest.mark.parametrize(
    ("variable", "value", "kind"),
    [
        ("SGLANG_SIMULATE_ACC_LEN", "3.24", "simulated"),
        ("SGLANG_SIMULATE_UNIFORM_EXPERTS", "1", "simulated"),
        ("SGLANG_IS_IN_CI", "true", "environment"),
        ("MLFLOW_RUN_ID", "0123456789abcdef", "environment"),
    ],
)
def test_poison_in_the_actors_environment_is_refused(cuda: ServerSpec, variable: str, value: str, kind: str) -> None:
    failure = refused(cuda, {variable: value})
    assert failure.kind == kind
    assert variable in failure.message
    assert ("simulated acceptance is on" in failure.message) == (kind == "simulated")


@pytest.mark.parametrize("value", ["", "0", "-1", "-1.0", "0.0"])
def test_a_simulation_that_is_off_is_no_poison(value: str) -> None:
    assert find_poison({"SGLANG_SIMULATE_ACC_LEN": value, "SGLANG_SIMULATE_ACC_METHOD": "multinomial"}) is None


def test_a_simulation_with_an_unreadable_value_counts_as_on() -> None:
    assert is_simulating({"SGLANG_SIMULATE_ACC_LEN": "lots"}) == "SGLANG_SIMULATE_ACC_LEN=lots"


def test_a_simulation_asked_for_is_refused_unless_allowed(tiny_pair: TinyPair, tmp_path: Path) -> None:
    asked = {"environment": {"SGLANG_SIMULATE_ACC_LEN": "3.24"}}
    failure = refused(fake_spec(tiny_pair, tmp_path, **asked), {}, 1)
    assert failure.kind == "simulated"
    assert "SGLANG_SIMULATE_ACC_LEN=3.24" in failure.message
    allowed = fake_spec(tiny_pair, tmp_path, allow_simulated=True, **asked)
    assert built(allowed, {}, 1)["SGLANG_SIMULATE_ACC_LEN"] == "3.24"


def test_only_listed_variables_are_passed_on(cuda: ServerSpec) -> None:
    inherited = {
        "PATH": "/bin",
        "HF_HOME": "/models",
        "HF_TOKEN": "hf_secret",
        "NCCL_DEBUG": "INFO",
        "LD_LIBRARY_PATH": "/cuda",
        "PYTHONPATH": "/stranger",
        "RAY_JOB_ID": "01",
        "SGLANG_ATTENTION_TRICK": "1",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "MLFLOW_TRACKING_URI": "http://tracking",
    }
    environment = build_environment(cuda, inherited, 2, Path("scratch"))
    assert isinstance(environment, Environment)
    kept = {name for name in inherited if name in environment.variables}
    assert kept == {"PATH", "HF_HOME", "HF_TOKEN", "NCCL_DEBUG", "LD_LIBRARY_PATH"}
    assert environment.withheld == ("SGLANG_ATTENTION_TRICK",)


def test_the_users_variables_win(tiny_pair: TinyPair, tmp_path: Path) -> None:
    spec = fake_spec(tiny_pair, tmp_path, environment={"NCCL_DEBUG": "WARN", "SGLANG_TRICK": "1"})
    variables = built(spec, {"NCCL_DEBUG": "INFO", "SGLANG_TRICK": "0"}, 1)
    assert (variables["NCCL_DEBUG"], variables["SGLANG_TRICK"]) == ("WARN", "1")


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "SPECSWEEP_ID", "TMPDIR"])
def test_variables_that_are_ours_are_refused(tiny_pair: TinyPair, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=rf"engine\.env\.{name}: not allowed"):
        fake_spec(tiny_pair, tmp_path, environment={name: "0"})


def test_the_loopback_address_never_goes_through_a_proxy(cuda: ServerSpec) -> None:
    variables = built(cuda, {"http_proxy": "http://proxy:3128", "no_proxy": "intranet"})
    assert variables["http_proxy"] == "http://proxy:3128"
    assert variables["no_proxy"] == "intranet,127.0.0.1,localhost"
    assert variables["NO_PROXY"] == "127.0.0.1,localhost"


def test_a_cpu_server_sees_no_gpu_and_gets_the_stand_ins_that_are_missing(tiny_pair: TinyPair, tmp_path: Path) -> None:
    spec = fake_spec(tiny_pair, tmp_path, stand_ins=frozenset({"sgl_kernel"}), environment={"PYTHONPATH": "mine"})
    variables = built(spec, {"CUDA_VISIBLE_DEVICES": "0"}, 1)
    assert (variables["SGLANG_USE_CPU_ENGINE"], variables["CUDA_VISIBLE_DEVICES"]) == ("1", "")
    path = variables["PYTHONPATH"].split(":")
    assert [Path(folder).name for folder in path] == ["common", "for_sgl_kernel", "mine"]
    assert "SGLANG_CPU_OMP_THREADS_BIND" not in variables
    without = built(fake_spec(tiny_pair, tmp_path), {}, 1)
    assert "PYTHONPATH" not in without
    assert "TORCHDYNAMO_DISABLE" not in without


@pytest.mark.parametrize(
    ("cores", "workers", "bound"),
    [([0, 1], 2, "0|1"), ([0, 1, 2, 3, 4], 2, "0,1|2,3"), ([3], 2, "3|3"), ([4, 6], 1, "4,6")],
)
def test_workers_share_the_cores(cores: list[int], workers: int, bound: str) -> None:
    assert bind_cores(cores, workers) == bound
