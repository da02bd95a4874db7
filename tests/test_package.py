"""What is shipped: every folder of the package, its data, light imports and the names that a user is promised."""

import ast
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import penstock
from penstock.frontend.commands import doctor
from penstock.kernels.cpu import build as native
from penstock.kernels.cpu.variants import VARIANTS, executable_variants, is_known_machine

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGE = ROOT / "frontend" / "http" / "page"
PAGE_ENDINGS = (".html", ".css", ".js")
NOT_SHIPPED = {"tests", "scripts", "docs", "build", "dist"}
# Writes an empty file for each that it should make.
EMPTY_COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then : > "$2"; fi
    shift
done
"""


@cache
def package_folders() -> dict[str, Path]:
    """Dotted name → folder, for every folder below the root that holds Python files."""
    found = {"penstock": ROOT}
    for room in ROOT.iterdir():
        for path in () if room.name in NOT_SHIPPED or room.name.startswith(".") else room.rglob("*.py"):
            parts = path.parent.relative_to(ROOT).parts
            if not any(part.startswith((".", "__")) for part in parts):
                found[".".join(("penstock", *parts))] = path.parent
    return found


def shipped_files() -> set[str]:
    """Sources and data of the package, as they lie below site-packages."""
    native_sources = {f"penstock/kernels/cpu/source/{path.name}" for path in native.SOURCE.iterdir()}
    page = {f"penstock/{path.relative_to(ROOT)}" for path in PAGE.rglob("*.*") if path.suffix in PAGE_ENDINGS}
    return (
        native_sources
        | page
        | {
            f"{name.replace('.', '/')}/{path.name}"
            for name, folder in package_folders().items()
            for path in folder.iterdir()
            if path.is_file()
            and path != ROOT / "setup.py"
            and (path.suffix in (".py", ".jinja", ".json") or path.name == "py.typed")
        }
    )


@pytest.fixture(scope="module", params=["empty kernels", pytest.param("compiled kernels", marks=pytest.mark.long)])
def built(request, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel and a source archive, made from a copy of the tree, without network."""
    folder = tmp_path_factory.mktemp("package")
    source = copied_tree(folder / "source")
    surroundings = {**os.environ, "PENSTOCK_VARIANTS": "all"}
    if request.param == "empty kernels":
        surroundings["CXX"] = empty_compiler(folder)
    elif is_known_machine() and native.compiler() is not None:
        compile_all_variants(source / "kernels" / "cpu" / "objects")
    else:
        pytest.skip("needs a C++ compiler")
    done = built_from(source, f"b.build_wheel({str(folder)!r}); b.build_sdist({str(folder)!r})", surroundings)
    assert done.returncode == 0, done.stderr
    return {"wheel": next(folder.glob("*.whl")), "source": next(folder.glob("*.tar.gz"))}


def built_from(source: Path, build: str, surroundings: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-c", f"import setuptools.build_meta as b; {build}"]
    return subprocess.run(words, cwd=source, env=surroundings, capture_output=True, text=True, timeout=600)


def empty_compiler(folder: Path) -> str:
    (folder / "compiler").write_text(EMPTY_COMPILER)
    (folder / "compiler").chmod(0o755)
    return str(folder / "compiler")


def copied_tree(target: Path) -> Path:
    """The shipped files alone: a build writes beside its sources, and others may be at work in the tree."""
    for name in [
        *shipped_files(),
        *(f"penstock/{name}" for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "LICENSE", "README.md")),
    ]:
        relative = Path(name).relative_to("penstock")
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        (target / relative).write_bytes((ROOT / relative).read_bytes())
    return target


def compile_all_variants(objects: Path) -> None:
    """In the checkout, where most have been compiled before, and other tests find the rest."""
    for variant in VARIANTS:
        native.build(variant)
        shutil.copytree(native.BuildFolders().objects / variant, objects / variant)


def imported_modules(paths: Iterable[Path]) -> set[str]:
    """Top-level names of all modules that these files import and Python does not bring."""
    found: set[str] = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
    return {name for name in found - sys.stdlib_module_names if not name.startswith("_")} - {"penstock"}


def required(requirements: Iterable[str]) -> dict[str, metadata.Distribution]:
    """What pip would install for these, by name, as this environment has it."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [Requirement(each) for each in requirements]
    while waiting:
        wanted = waiting.pop()
        if canonicalize_name(wanted.name) not in found:
            distribution = found[canonicalize_name(wanted.name)] = metadata.distribution(wanted.name)
            for each in map(Requirement, distribution.requires or ()):
                extras = wanted.extras or {""}
                if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
                    waiting.append(each)
    return found


def environment_of(wheel: Path, folder: Path) -> Path:
    """A virtual environment's Python, with the wheel and what it depends on, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    [packages] = folder.glob("lib/python3*/site-packages")
    words = ["install", "--quiet", "--no-index", "--no-deps", "--target", packages, wheel]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, timeout=300)
    for distribution in required(PROJECT["dependencies"]).values():
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(distribution.locate_file(name))).resolve())
    return folder / "bin" / "python"


def in_a_new_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_folder_of_the_package_says_what_it_is():
    assert [name for name, folder in package_folders().items() if not (folder / "__init__.py").is_file()] == []


def test_the_wheel_holds_all_sources_and_data_and_nothing_else(built):
    inside = {name for name in zipfile.ZipFile(built["wheel"]).namelist() if ".dist-info/" not in name}
    variants = VARIANTS if is_known_machine() else ()
    libraries = {f"penstock/kernels/cpu/{native.library_path(variant).name}" for variant in variants}
    assert inside == shipped_files() | libraries
    assert not variants or built["wheel"].name.endswith("-py3-none-linux_x86_64.whl"), "for any Python 3"


def test_without_a_compiler_the_wheel_is_pure_python(tmp_path):
    source = copied_tree(tmp_path / "source")
    surroundings = {"PATH": str(tmp_path / "nothing"), "HOME": str(tmp_path)}
    done = built_from(source, "print(b.build_wheel('..'))", surroundings)
    assert done.stdout.splitlines()[-1].endswith("-py3-none-any.whl"), done.stderr
    assert "WARNING: native kernels are not compiled" in done.stderr


def test_a_wheel_holds_the_variant_of_this_processor_and_no_variant_that_there_is_not(tmp_path):
    source = copied_tree(tmp_path / "source")
    surroundings = {**os.environ, "CXX": empty_compiler(tmp_path)}
    surroundings.pop("PENSTOCK_VARIANTS", None)
    if best := executable_variants()[:1]:
        done = built_from(source, "b.build_wheel('..')", surroundings)
        names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
        libraries = [Path(name).name for name in names if name.endswith(".so")]
        assert libraries == [native.library_path(best[0]).name], done.stderr
    done = built_from(source, "b.build_wheel('..')", surroundings | {"PENSTOCK_VARIANTS": "avx2, sse9"})
    assert done.returncode != 0 and "there is no sse9; it is all, or avx2, " in done.stderr


@pytest.mark.long
@pytest.mark.skipif(not is_known_machine() or native.compiler() is None, reason="needs a C++ compiler for x86-64")
def test_the_wheel_for_all_machines_answers_where_neither_compiler_nor_torch_is(tmp_path):
    done = subprocess.run([ROOT / "scripts" / "build_wheel", tmp_path], capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    python = environment_of(next(tmp_path.glob("*-py3-none-manylinux_2_28_x86_64.whl")), tmp_path / "environment")
    code = """
import importlib.util
from penstock import LLM
if __name__ == "__main__":
    assert importlib.util.find_spec("torch") is None
    with LLM("pocket", quiet=True) as llm:
        [output] = llm.chat([{"role": "user", "content": "What is 20 + 22?"}], use_tqdm=False)
    print(output.outputs.text)
"""
    surroundings = {name: value for name, value in os.environ.items() if name not in ("CXX", "PYTHONPATH")}
    surroundings |= {"PATH": str(tmp_path / "nothing"), "PENSTOCK_CACHE": str(tmp_path / "cache")}
    words = [python, "-c", code]
    done = subprocess.run(words, cwd=tmp_path, env=surroundings, capture_output=True, text=True, timeout=300)
    assert "42" in done.stdout, done.stderr


_EXTRAS = ("torch", "gpu", "http", "video", "parquet", "ray", "dynamo", "transformers")


def test_the_package_depends_on_what_it_imports_outside_of_its_extras():
    paths = [path for folder in package_folders().values() for path in folder.glob("*.py") if path.name != "setup.py"]
    distributions = metadata.packages_distributions()
    absent = {"dynamo": "ai-dynamo"}  # an extra that the tests do without
    imported = {
        name for module in imported_modules(paths) for name in distributions.get(module, [absent.get(module, module)])
    }
    named = {
        extra: {canonicalize_name(Requirement(each).name) for each in requirements}
        for extra, requirements in {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}.items()
    }
    for_users = set().union(*(named[extra] for extra in _EXTRAS))
    assert {canonicalize_name(name) for name in imported} - for_users == named[""]


def test_setup_takes_the_versions_of_python_that_the_package_names():
    named = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each]
    low, high = (".".join(map(str, version)) for version in doctor._PYTHONS)
    assert [low, high] == [named[0], named[-1]] and PROJECT["requires-python"] == f">={low}"
    setup = (ROOT / "scripts" / "setup").read_text(encoding="utf-8")
    [line] = [line for line in setup.splitlines() if line.startswith("tested=")]
    done = subprocess.run(["bash", "-c", f"{line}; echo $tested"], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == named


def test_the_wheel_holds_the_license_and_the_command_and_the_archive_all_that_a_build_needs(built):
    archive = zipfile.ZipFile(built["wheel"])
    info = next(name for name in archive.namelist() if name.endswith("METADATA")).rpartition("/")[0]
    assert "Apache License" in archive.read(f"{info}/licenses/LICENSE").decode()
    assert "penstock = penstock.frontend.cli:main" in archive.read(f"{info}/entry_points.txt").decode()
    assert f"Version: {penstock.__version__}" in archive.read(f"{info}/METADATA").decode()
    with tarfile.open(built["source"]) as sources:
        inside = {name.partition("/")[2] for name in sources.getnames()}
    wanted = {name.removeprefix("penstock/") for name in shipped_files()}
    assert wanted | {"pyproject.toml", "setup.py", "LICENSE", "README.md"} <= inside


def test_importing_penstock_brings_no_dependency_and_its_names_neither_torch_nor_transformers():
    heavy = "torch transformers numpy msgspec zmq tokenizers"
    assert in_a_new_process(f"import penstock, sys; print(*set('{heavy}'.split()) & set(sys.modules))") == ""
    code = "import sys; from penstock import *; print(LLM.__name__, *{'torch', 'transformers'} & set(sys.modules))"
    assert in_a_new_process(code) == "LLM"
    assert set(penstock.__all__) <= set(dir(penstock))
    with pytest.raises(AttributeError, match="no attribute 'Reservoir'"):
        penstock.Reservoir  # noqa: B018


def test_another_system_is_told_that_linux_is_needed():
    code = "import sys; sys.platform = 'darwin'\ntry: import penstock\nexcept ImportError as error: print(error)"
    assert "Linux" in in_a_new_process(code)
