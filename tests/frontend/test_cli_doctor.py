"""`penstock doctor`: what is found, how it is judged, and the exit status."""

import re

import pytest
from builders.cases import for_each

from penstock.frontend import cli, machine
from penstock.frontend.commands import doctor
from penstock.frontend.machine import ask_survey
from penstock.protocol.errors import EngineDeadError
from penstock.protocol.survey import GpuSurvey, NativeSurvey, Survey, TorchSurvey

GIB = 1 << 30
TORCH = TorchSurvey(version="2.13.0+cpu")
NATIVE = NativeSurvey("avx2", is_compiled=True, can_compile=True)
CARD = GpuSurvey("A card", 80 * GIB, 79 * GIB)


@pytest.fixture(autouse=True)
def found_without_torch(monkeypatch) -> None:
    """No test here waits for torch; one asks the real survey."""
    answer = Survey(available_bytes=8 * GIB, families=[], models=[], torch=TORCH, native=NATIVE)
    monkeypatch.setattr(doctor, "ask_survey", lambda with_torch: answer)


def verdicts(text: str) -> dict[str, str]:
    """Name → verdict, for every line that begins with one."""
    words = [line.split() for line in text.splitlines() if line.startswith(("ok", "warn", "FAIL"))]
    return {name: verdict for verdict, name, *_ in words}


def test_a_machine_that_runs_these_tests_can_run_a_model(capsys):
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "A model can run here."
    assert "FAIL" not in verdicts(said).values()
    looked_at = {"python", "processor", "features", "memory", "torch", "GPU", "kernels", "compiler", "logs", "hub"}
    assert looked_at <= verdicts(said).keys()


def test_what_keeps_a_model_from_running_is_the_exit_status_and_has_advice(capsys, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PENSTOCK_LOG_DIR", str(tmp_path / "file" / "logs"))
    assert cli.main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert verdicts(said)["logs"] == "FAIL"
    assert "→ set PENSTOCK_LOG_DIR" in said
    assert said.splitlines()[-1].startswith("No model can run here")
    monkeypatch.delenv("PENSTOCK_LOG_DIR")
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "file"))  # which is only a warning
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert cli.main(["doctor"]) == 0
    assert verdicts(capsys.readouterr().out)["cache"] == "warn"

    def dies(with_torch: bool) -> Survey:
        raise EngineDeadError("The worker's survey ended with status -11: it said nothing")

    monkeypatch.setattr(doctor, "ask_survey", dies)
    assert cli.main(["doctor"]) == 1
    found = verdicts(capsys.readouterr().out)
    assert found["worker"] == "FAIL" and {"compiler", "hub"} <= found.keys()


def test_the_real_survey_finds_torch_in_a_process_of_its_own():
    found = ask_survey(with_torch=True)
    assert found.torch is not None and found.torch.error is None
    assert found.torch.version[0].isdigit()
    assert found.available_bytes > 0
    assert found.native is not None and bool(found.native.variant) != bool(found.native.problem)


def test_pythons_processors_and_compilers_are_judged():
    pythons = {(3, 10, 9): "FAIL", (3, 11, 0): "ok", (3, 12, 4): "ok", (3, 14, 0): "warn"}
    assert {version: doctor._python(version).verdict for version in pythons} == pythons
    for features, verdict in (((), "warn"), (("avx2",), "ok"), (("asimd", "bf16"), "ok")):
        lines = list(doctor._processor(machine.Processor("A processor", 8, 2, features)))
        assert lines[0].found == "A processor, 2 of 8 cores"
        assert (lines[1].verdict, bool(lines[1].advice)) == (verdict, verdict == "warn")


def test_a_limit_is_named_where_it_is_smaller_than_the_memory():
    limited = doctor._memory(2 * GIB, 16 * GIB, 4 * GIB).found
    assert limited == "2.0 GiB free of 16.0 GiB, limited to 4.0 GiB by a control group"
    assert doctor._memory(2 * GIB, 16 * GIB, 64 * GIB).found == "2.0 GiB free of 16.0 GiB"
    assert doctor._memory(GIB // 2, 16 * GIB, None).verdict == "warn"


@for_each("torch, seen, verdicts", [
    (TorchSurvey(error="OSError: libtorch.so: cannot open"), [], {"torch": "warn", "GPU": "ok"}),
    (TorchSurvey(), [], {"torch": "ok", "GPU": "ok"}), (TorchSurvey(), [CARD], {"torch": "ok", "GPU": "warn"}),
    (TORCH, [], {"torch": "ok", "GPU": "ok"}), (TORCH, [CARD], {"torch": "ok", "GPU": "warn"}),
    (TorchSurvey(version="2.13.0", cuda="12.8"), [CARD], {"torch": "ok", "GPU": "warn"}),
    (TorchSurvey(version="2.13.0", cuda="12.8", cards=[CARD]), [], {"torch": "ok", "GPU": "ok", "triton": "warn"}),
    (TorchSurvey("2.15.0a0+git1", cuda="12.8", cards=[CARD], triton="3.5"), [], {"torch": "warn", "GPU": "ok"}),
])  # fmt: skip
def test_torch_and_cards(torch, seen, verdicts, monkeypatch):
    monkeypatch.setattr(machine, "cards", lambda: seen)
    monkeypatch.setattr(doctor, "has_driver", lambda: False)
    lines = list(doctor._torch_and_cards(torch, is_needed=False))
    assert {line.name: line.verdict for line in lines} == verdicts
    assert all(line.advice for line in lines if line.verdict != "ok")
    monkeypatch.setattr(doctor, "has_driver", lambda: True)
    assert seen or "nvidia-smi" in doctor._cards(TORCH).advice, "a driver without a card"
    monkeypatch.setattr(machine, "cards", lambda: [CARD])
    assert "no device: why" in doctor._cards(TorchSurvey(version="2.13.0", cuda="12.8", lack="why")).advice


@for_each("native, with_torch, without, found, advice", [
    (NATIVE, "ok", "ok", "avx2", ""),
    (NativeSurvey("avx2", can_compile=True), "warn", "warn", "not compiled yet", "penstock.kernels.cpu.build"),
    (NativeSurvey("avx2"), "warn", "FAIL", "NO native", "install g++"),
    (NativeSurvey(problem="It is too old."), "warn", "FAIL", "NO native kernels: It is too", ""),
])  # fmt: skip
def test_a_processor_without_native_kernels_needs_torch(native, with_torch, without, found, advice):
    lines = {has_torch: doctor._kernels(native, has_torch) for has_torch in (True, False)}
    assert (lines[True].verdict, lines[False].verdict) == (with_torch, without)
    assert all(found in line.found and advice in line.advice for line in lines.values())
    assert without != "FAIL" or ("slower" in lines[True].advice and "penstock[torch]" in lines[False].advice)


def test_a_processor_is_read_from_the_kernels_list(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nmodel name\t: Fast One\nflags\t\t: fpu amx_bf16 avx2 avx512f\n\nprocessor\t: 1\n")
    found = machine.processor(path)
    assert (found.name, found.features) == ("Fast One", ("avx2", "avx512f", "amx_bf16"))
    path.write_text("processor\t: 0\nFeatures\t: fp asimd bf16\n")
    assert machine.processor(path).features == ("asimd", "bf16")


@for_each("group, limits, wanted", [
    ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "5000", "memory.max": "9000"}, 5000),
    ("0::/host/path", {"memory.max": "7000"}, 7000), ("0::/", {"memory.max": "max"}, None),
    ("4:memory:/a", {"memory/a/memory.limit_in_bytes": "3000"}, 3000),
    ("4:memory:/a", {"memory/a/memory.limit_in_bytes": str((1 << 63) - 4096)}, None),
])  # fmt: skip
def test_the_smallest_limit_of_all_control_groups_counts(group, limits, wanted, tmp_path):
    (tmp_path / "cgroup").write_text(group + "\n")
    for name, text in limits.items():
        path = tmp_path / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert machine.memory_limit(tmp_path / "cgroup", tmp_path / "sys") == wanted


@for_each("script, cards", [
    ("echo 'NVIDIA H200, 143771, 143'; echo 'No devices'", [GpuSurvey("NVIDIA H200", 143771 << 20, 143 << 20)]),
    ("echo 'NVIDIA-SMI has failed'; exit 9", []),
])  # fmt: skip
def test_cards_are_what_nvidia_smi_lists(script, cards, monkeypatch, tmp_path):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert machine.cards() == cards


def test_the_start_of_a_model_is_a_timeline_without_gaps_of_each_process(capsys):
    assert cli.main(["doctor", "--start", "pocket"]) == 0
    said = capsys.readouterr().out
    first_token = int(re.match(r"The first token came (\d+) ms", said)[1])
    parts = re.findall(r"^(.{12}) (.{12}) +(\d+) +(\d+) +\d+", said, re.MULTILINE)
    ends: dict[str, int] = {}
    for process, part, start, end in parts:
        assert int(start) <= int(end) <= first_token and ends.get(process, int(start)) <= int(start), part
        ends[process] = int(end)
    assert {process.strip() for process in ends} == {"front end", "worker 0", "engine", "detokenizer"}
    assert ends["front end   "] == first_token
    assert {part.strip() for _, part, *_ in parts} >= {"interpreter", "imports", "tokenizer", "weights", "first token"}
