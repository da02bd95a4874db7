"""Which variant is chosen, when it is compiled, and what a caller is told where there is none.

Also the lanes that kernels are written in, and the pool of threads that they share, through small programs of their
own; `.ci/sanitize` runs the pool's longer, and under ThreadSanitizer.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.native_variants import needs_variant

from penstock.kernels.cpu import build, libraries, variants
from penstock.kernels.cpu import library as loading
from penstock.kernels.cpu.library import LibraryError, load

HAS_COMPILER = build.compiler() is not None
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="needs a C++ compiler")
AVX2 = frozenset({"avx2", "fma", "f16c", "bmi2"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"}


@pytest.fixture
def sources(tmp_path, monkeypatch) -> Path:
    """A little source folder of the test's own; its library has one kernel, which writes a number."""
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("identity.cpp", "exports.map"):
        shutil.copy(build.SOURCE / name, folder / name)
    (folder / "number.hpp").write_text("constexpr int number = 1;\n")
    (folder / "kernel.cpp").write_text(
        '#include "number.hpp"\nextern "C" void penstock_write(const void* to) { **(int* const*)to = number; }\n'
    )
    for module in (build, libraries):
        monkeypatch.setattr(module, "SOURCE", folder)
    return folder


@pytest.fixture
def folders(tmp_path) -> build.BuildFolders:
    return build.BuildFolders(tmp_path / "libraries", tmp_path / "objects")


def written_by(folders: build.BuildFolders) -> int:
    """In a process of its own, as a start would load it."""
    path = build.library_path("avx2", folders.libraries)
    code = (
        f"import ctypes; n = ctypes.c_int(); to = ctypes.c_void_p(ctypes.addressof(n))\n"
        f"ctypes.CDLL({str(path)!r}).penstock_write(ctypes.byref(to)); print(n.value)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return int(done.stdout)


def objects_of(folders: build.BuildFolders) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folders.objects / "avx2").glob("*.o")}


# --- choosing ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def of_machine(monkeypatch) -> Callable[[str], None]:
    """Makes the table one for processors of this kind."""

    def change(machine: str) -> None:
        own = {name: each for name, each in variants.ALL_VARIANTS.items() if each.machine == machine}
        monkeypatch.setattr(variants, "VARIANTS", own)

    return change


@for_each("machine, features, wanted", [
    ("x86_64", frozenset({"sse4_2", "avx"}), ()),
    ("x86_64", AVX2 - {"f16c"}, ()),
    ("x86_64", AVX2, ("avx2",)),
    ("x86_64", AVX2 | {"avx_vnni"}, ("avx_vnni", "avx2")),
    ("x86_64", AVX512, ("avx512", "avx2")),
    ("x86_64", AVX512 | {"avx512_vnni"}, ("avx512_vnni", "avx512", "avx2")),
    ("x86_64", AVX512 | {"avx512_vnni", "avx_vnni"}, ("avx512_vnni", "avx512", "avx_vnni", "avx2")),
    ("x86_64", AVX512 | {"avx512_vnni", "avx512_bf16"}, ("avx512_bf16", "avx512_vnni", "avx512", "avx2")),
    ("aarch64", frozenset({"fp", "asimd"}), ()),
    ("aarch64", frozenset({"fp", "asimd", "asimddp"}), ("neon",)),
    ("aarch64", frozenset({"asimd", "asimddp", "i8mm", "bf16"}), ("neon_i8mm", "neon")),
    ("aarch64", AVX2, ()),
    ("riscv64", AVX2, ()),
])  # fmt: skip
def test_the_widest_instructions_that_a_processor_has_come_first(machine, features, wanted, of_machine):
    of_machine(machine)
    assert variants.executable_variants(features) == wanted


def test_a_processor_with_tiles_uses_them_where_the_system_grants_their_registers(monkeypatch, of_machine):
    of_machine("x86_64")
    monkeypatch.setattr(variants, "processor_features", lambda: frozenset(variants.VARIANTS["amx"].features))
    for is_granted, wanted in ((True, "amx"), (False, "avx512_bf16")):
        monkeypatch.setattr(variants, "grants_tiles", lambda is_granted=is_granted: is_granted)
        assert variants.executable_variants()[0] == wanted


def test_features_are_read_from_the_kernels_list(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert variants.processor_features(path) == {"fpu", "avx2", "fma"}
    path.write_text("processor\t: 0\nBogoMIPS\t: 243\nFeatures\t: fp asimd asimddp\nCPU part\t: 0xd0c\n")
    assert variants.processor_features(path) == {"fp", "asimd", "asimddp"}
    assert variants.processor_features(tmp_path / "nothing") == frozenset()


@for_each("wanted, executable, sentence", [
    ("none", ("avx2",), "switched off"),
    ("sse2", ("avx2",), "there is no such variant"),
    ("avx512_bf16", ("avx2",), "cannot execute it"),
    ("", (), "need"),
])  # fmt: skip
def test_a_variant_that_cannot_be_had_is_refused_with_the_reason(wanted, executable, sentence, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CPU_VARIANT", wanted)
    monkeypatch.setattr(loading, "executable_variants", lambda: executable)
    with pytest.raises(LibraryError, match=sentence):
        loading.chosen_variant()


# --- compiling --------------------------------------------------------------------------------------------------------


@needs_compiler
def test_only_what_changed_is_compiled_again(sources, folders):
    assert not build.is_current("avx2", folders)
    build.build("avx2", folders)
    before = objects_of(folders)
    assert build.is_current("avx2", folders)
    assert set(before) == {"identity.o", "kernel.o"} and written_by(folders) == 1
    build.build("avx2", folders)
    assert objects_of(folders) == before
    (sources / "other.cpp").write_text('extern "C" void penstock_nothing(const void*) {}\n')
    build.build("avx2", folders)
    assert objects_of(folders)["kernel.o"] == before["kernel.o"]
    (sources / "number.hpp").write_text("constexpr int number = 2;\n")
    assert not build.is_current("avx2", folders)
    build.build("avx2", folders)
    assert objects_of(folders)["kernel.o"] != before["kernel.o"] and written_by(folders) == 2


@needs_compiler
def test_a_source_that_does_not_compile_is_named_and_left_out_only_on_demand(sources, folders, monkeypatch):
    (sources / "broken.cpp").write_text("int broken( { return 1; }\n")
    monkeypatch.setenv("PENSTOCK_CPU_LIBRARIES", str(folders.libraries))
    with pytest.raises(LibraryError, match=r"broken\.cpp:1"):
        load.__wrapped__("avx2")  # not a library that this process has loaded before
    assert not build.is_current("avx2", folders)
    with pytest.raises(build.BuildError, match=r"broken\.cpp:1"):
        build.build("avx2", folders)
    assert "broken.cpp:1" in "".join(build.build("avx2", folders, keep_going=True))
    assert written_by(folders) == 1
    with pytest.raises(build.BuildError):
        build.build("avx2", folders)


@needs_compiler
def test_the_compiler_of_the_environment_goes_first(monkeypatch, tmp_path):
    own = tmp_path / "my-compiler"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("CXX", str(own))
    assert build.compiler() == str(own)
    monkeypatch.setenv("CXX", str(tmp_path / "missing"))
    assert build.compiler() not in (None, str(own))


# --- loading ----------------------------------------------------------------------------------------------------------


@needs_variant
def test_every_variant_that_this_processor_can_execute_loads(library):
    assert load(library.variant).path == library.path
    assert library.address("penstock_replay") > 0
    with pytest.raises(LibraryError, match="has no penstock_perpetuum_mobile"):
        library.function("penstock_perpetuum_mobile")
    with pytest.raises(LibraryError, match="no variant 'sse2'"):
        load("sse2")


@needs_variant
def test_a_library_needs_no_runtime_of_a_compiler_and_no_glibc_younger_than_2018(library):
    content = library.path.read_bytes()
    assert b"libstdc++" not in content and b"libgcc_s" not in content
    assert max(map(int, re.findall(rb"GLIBC_2\.(\d+)", content)), default=0) <= 28


def test_without_a_compiler_the_errors_say_what_is_missing_and_what_to_install(folders, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CPU_LIBRARIES", str(tmp_path))
    monkeypatch.setattr(build, "compiler", lambda: None)
    with pytest.raises(build.BuildError, match=r"install g\+\+"):
        build.build("avx2", folders)
    load.cache_clear()
    try:
        with pytest.raises(LibraryError, match=r"not compiled for avx2: No C\+\+ compiler"):
            load("avx2")
    finally:
        load.cache_clear()


# --- lanes ------------------------------------------------------------------------------------------------------------

LANES = Path(__file__).parent / "lanes_driver.cpp"
ARM_COMPILER, ARM_EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"


def check_lanes(folder: Path, compiler: str, flags: Sequence[str], before: Sequence[str] = ()) -> None:
    program = folder / "lanes"
    # GCC 12 takes its own intrinsics for uninitialized (its bug 105593).
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-uninitialized", "-Wno-maybe-uninitialized"]
    given = ["-std=c++17", "-O2", *warnings, "-ffp-contract=off", f"-I{build.SOURCE}"]
    subprocess.run([compiler, *given, *flags, LANES, "-o", program], check=True, timeout=600)
    done = subprocess.run([*before, program], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done


@needs_compiler
@needs_variant
def test_lanes_compute_what_their_numbers_give_one_by_one(tmp_path):
    check_lanes(tmp_path, build.compiler(), variants.VARIANTS[variants.executable_variants()[0]].flags)


@pytest.mark.long
@for_each("name", [name for name, each in variants.ALL_VARIANTS.items() if each.machine == "aarch64"])
def test_lanes_of_an_emulated_arm_processor_do_so_too(name, tmp_path):
    if not (shutil.which(ARM_COMPILER) and shutil.which(ARM_EMULATOR)):
        pytest.skip(f"needs {ARM_COMPILER} and {ARM_EMULATOR}, on Debian g++-aarch64-linux-gnu and qemu-user")
    flags = ["-static", *variants.ALL_VARIANTS[name].flags]
    check_lanes(tmp_path, ARM_COMPILER, flags, [ARM_EMULATOR, "-cpu", "max"])


# --- the pool of threads ----------------------------------------------------------------------------------------------


@needs_compiler
def test_every_chunk_runs_once_whatever_the_threads_the_callers_and_the_forks(tmp_path):
    program, driver = tmp_path / "driver", Path(__file__).parent / "native_driver.cpp"
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{build.SOURCE}"]
    command = [build.compiler(), *flags, driver, build.SOURCE / "pool.cpp", "-o", program]
    subprocess.run(command, check=True, timeout=600)
    done = subprocess.run([program, "700"], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done
