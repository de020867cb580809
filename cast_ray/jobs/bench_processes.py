"""What the processes of a bench use: processor time by component, private memory."""

from __future__ import annotations

from collections.abc import Mapping

import psutil

_COMPONENTS = {
    "ray::EnvironmentActor": "environment",
    "ray::OracleActor": "oracle",
    "ray::AnalystActor": "analyst",
    "ray::ServeReplica:cast-ray-site": "site",
    "ray::ServeReplica": "engine",
    "ray::ProxyActor": "proxy",
    "VLLM::EngineCor": "engine_core",
    "ray::ServeController": "serve_controller",
    "ray::DashboardAgent": "ray_agents",
    "ray::RuntimeEnvAgent": "ray_agents",
    "raylet": "raylets",
    "gcs_server": "gcs",
}
OTHER = "other"
DRIVER = "driver"


def processes_by_component() -> dict[str, list[psutil.Process]]:
    """Return this process (``driver``) and all below it: actors, engines and Ray itself."""
    found: dict[str, list[psutil.Process]] = {DRIVER: [psutil.Process()]}
    for process in psutil.Process().children(recursive=True):
        try:
            title = " ".join(process.cmdline()[:1]) or process.name()
            names = f"{title} {process.name()}"
        except psutil.Error:
            continue
        component = next((c for key, c in _COMPONENTS.items() if key in names), OTHER)
        found.setdefault(component, []).append(process)
    return found


def cpu_seconds() -> dict[str, float]:
    """Return the processor time that each component has used so far, user and system."""
    seconds: dict[str, float] = {}
    for component, processes in processes_by_component().items():
        for process in processes:
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            seconds[component] = seconds.get(component, 0.0) + times.user + times.system
    return seconds


def cpu_ms_per_turn(
    before: Mapping[str, float], after: Mapping[str, float], num_turns: int
) -> dict[str, float]:
    """Return ``<component>_cpu_ms_per_turn`` between two readings of ``cpu_seconds``, and all."""
    used = {name: after[name] - before.get(name, 0.0) for name in after}
    per_turn = {
        f"{name}_cpu_ms_per_turn": 1000 * seconds / num_turns for name, seconds in used.items()
    }
    return {**per_turn, "all_cpu_ms_per_turn": 1000 * sum(used.values()) / num_turns}


def private_mib(processes: list[psutil.Process]) -> float:
    """Return the memory that would be free if these processes ended."""
    return sum(process.memory_full_info().uss for process in processes) / 2**20
