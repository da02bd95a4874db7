"""Holds the rules about who imports whom, and says which files and functions have outgrown a screenful."""

import ast
import gc
import graphlib
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.package_sources import (
    ROOMS,
    ROOT,
    all_files,
    attributes,
    functions,
    imported_on_demand,
    imports,
    is_in,
    lines_of,
    modules,
    modules_imported_by,
    package_files,
    parsed,
    reached_from,
    room_of,
    source,
    statements,
)  # fmt: skip

# Which other rooms a room may import.
MAY_IMPORT = {
    "protocol": set(),
    "engine": {"protocol"},
    "worker": {"protocol", "kernels"},
    "kernels": set(),
    "frontend": {"protocol", "cluster"},  # of which a command hands a job to other machines
    # A path by which users import what lies in frontend/allspark.
    "allspark": {"frontend"},
    # By which engines that run many machines use the front end.
    "cluster": {"frontend", "protocol"},
}
# What computes with tensors, on a GPU or where no native kernels are; all else holds arrays, and loads without torch.
TORCH_ROOMS = {
    "kernels/reference",
    "kernels/torch",
    "kernels/triton",
    "worker/backends/torch",
    "worker/backends/triton",
    # Of the start what only a GPU's worker imports: it plans with the rooms above the backends.
    "worker/start/card",
}
# Of these rooms the files that all may import, because they load without torch: why no kernels can run, and switches.
FREE_OF_TORCH = {"kernels/triton/__init__.py", "kernels/triton/launch/switches.py"}
# Which rooms, or which single files, may import a distribution; nobody else does.
EVENT_SOCKETS = {"engine/event_socket.py", "engine/event_replays.py"}
AT_HOME = {
    "torch": TORCH_ROOMS,
    "triton": {"kernels"},
    "zmq": {"protocol/processes/sockets.py", "protocol/ranks", "frontend/nodes"} | EVENT_SOCKETS,
    "transformers": {"frontend/text/convert_tokenizer.py"},
    "safetensors": {"worker", "frontend"},
    "huggingface_hub": {"frontend"},
    "tokenizers": {"frontend"},
    # Their files are read by frontend/text/vocabulary; only tests hold it against them.
    "sentencepiece": set(),
    "tiktoken": set(),
    "llguidance": {"engine/grammar/matcher.py"},
    "jinja2": {"frontend"},
    "starlette": {"frontend/http/application.py"},
    "httptools": {"frontend/http/connections/request_head.py"},
    "tqdm": {"frontend"},
    "yaml": {"frontend/allspark/configuration/yaml_text.py", "cluster/ray.py"},
    "ray": {"cluster"},
    "dynamo": {"cluster/dynamo.py"},
    "PIL": {
        "frontend/media/rgb.py",
        "frontend/media/sources/given_pixels.py",
        "frontend/media/decoding/decode.py",
        "frontend/media/decoding/films.py",
        "frontend/media/decoding/images.py",
        "frontend/media/decoding/videos.py",
        *(f"frontend/media/families/{name}.py" for name in ("ernie", "family", "frames", "gemma3")),
        *(f"frontend/media/families/{name}.py" for name in ("idefics3", "qwen", "smolvlm")),
    },
    "av": {"frontend/media/decoding/films.py"},
    # Messages are msgspec structs and files safetensors; children are started by name (protocol/processes/process.py).
    "pickle": set(),
    "cloudpickle": set(),
    "marshal": set(),
    "multiprocessing": set(),
}
VERSIONS = tuple(f"penstock.kernels.{room}" for room in ("cpu", "torch", "triton"))
KERNELS_KNOW = {"numpy", "ml_dtypes", "torch", "triton", "penstock"}

FILE_LINES_AT_MOST, FILE_LINES_WELCOME = 400, 300
FUNCTION_LINES_AT_MOST, FUNCTION_LINES_WELCOME = 80, 40
ROOM_FILES_AT_MOST, CIRCLE_FILES_AT_MOST, LINES_OF_ITS_OWN = 15, 3, 60
# Rooms that are being cut up now; what is done leaves this list.
FULL_ROOMS_BEING_MENDED = {"scripts", "scripts/peers"}


@pytest.fixture(scope="module", autouse=True)
def nothing_is_garbage() -> Iterator[None]:
    """Half of the time went into looking through what was parsed, all of which stays."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def no_faults(faults: list[str], rule: str) -> None:
    assert not faults, rule + ":\n  " + "\n  ".join(faults)


def test_no_module_imports_itself_by_way_of_others():
    needed = {
        name: {other for other, is_type in modules_imported_by(path).items() if not is_type}
        for name, path in modules().items()
    }
    try:
        graphlib.TopologicalSorter(needed).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"these import one another: {' → '.join(error.args[1])}")


def test_few_files_import_one_another_even_for_their_types():
    reached = {path: reached_from(path) for path in package_files()}
    circles = {frozenset(other for other in reached[path] if path in reached[other]) for path in reached}
    faults = [", ".join(sorted(map(str, circle))) for circle in circles if len(circle) > CIRCLE_FILES_AT_MOST]
    no_faults(faults, f"At most {CIRCLE_FILES_AT_MOST} files import one another for their types")


def test_the_rooms_of_the_worker_import_one_another_in_one_direction():
    below: dict[str, set[str]] = {}
    for path in package_files():
        if path.parts[0] == "worker":
            others = {modules()[name] for name in modules_imported_by(path)}
            rooms = {other.parts[1] for other in others if other.parts[0] == "worker"}
            below.setdefault(path.parts[1], set()).update(rooms - {path.parts[1]})
    try:
        graphlib.TopologicalSorter(below).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"these rooms import one another: {' → '.join(error.args[1])}")


def test_a_room_holds_few_files_beside_its_rooms():
    rooms = Counter(path.parent.as_posix() for path in all_files() if path.parts[0] != "tests")
    faults = [
        f"{room} holds {count} Python files"
        for room, count in rooms.items()
        if count > ROOM_FILES_AT_MOST and room not in FULL_ROOMS_BEING_MENDED
    ]
    no_faults(faults, f"Give what belongs together a room: at most {ROOM_FILES_AT_MOST} files")


def test_a_small_file_that_one_neighbour_imports_joins_it_unless_it_says_what_else_it_is_for():
    """So that no room gets small by cutting files to pieces. An opening line says so by naming the other file."""
    importers: dict[Path, list[Path]] = {}
    for path in package_files():
        for name in modules_imported_by(path):
            importers.setdefault(modules()[name], []).append(path)
    faults = []
    for path, (first, *others) in importers.items():
        lines = len(source(path).splitlines())
        is_own = path.stem.startswith("__")
        if lines < LINES_OF_ITS_OWN and not others and first.parent == path.parent and not is_own:
            opening = (ast.get_docstring(parsed(path)) or "").splitlines()[0]
            named = {ROOT / name for name in re.findall(r"`([\w./-]+)`", opening)}
            if not any(each.exists() and each != ROOT / first for each in named):
                faults.append(f"{path} ({lines} lines) into {first.name}")
    no_faults(faults, "Join these, or say in their opening lines which other file they are for")


def test_no_room_imports_a_room_that_it_does_not_know():
    faults = []
    for path in package_files():
        room = room_of(path)
        for name, line in imports(path):
            parts = name.split(".")
            if room == "kernels" and parts[0] not in KERNELS_KNOW | sys.stdlib_module_names:
                faults.append(f"{path}:{line} imports {name}")
            if parts[0] != "penstock" or len(parts) < 2 or not room:
                continue
            if parts[1] in ROOMS and parts[1] != room and parts[1] not in MAY_IMPORT[room]:
                faults.append(f"{path}:{line} imports {name}")
    no_faults(faults, "A room imports only the rooms below it")


@for_each("distribution", AT_HOME)
def test_a_distribution_is_imported_only_where_it_is_at_home(distribution):
    homes = AT_HOME[distribution]
    faults = [
        f"{path}:{line}"
        for path in package_files()
        for name, line in imports(path)
        if name.split(".")[0] == distribution and not is_in(path, homes)
    ]
    no_faults(faults, f"{distribution} belongs into {', '.join(sorted(homes)) or 'no file'} only")


def test_a_file_outside_of_torchs_rooms_loads_without_torch():
    """So that no process of a tree on native kernels has it."""
    rooms = tuple(f"penstock.{room.removesuffix('.py').replace('/', '.')}." for room in TORCH_ROOMS)
    free = {name for name, path in modules().items() if path.as_posix() in FREE_OF_TORCH}
    faults = [
        f"{path}:{line} imports {name}"
        for path in package_files()
        if not is_in(path, TORCH_ROOMS) or path.as_posix() in FREE_OF_TORCH
        for name, line in imports(path)
        if name.split(".")[0] == "torch" or f"{name}.".startswith(rooms)
        if line not in imported_on_demand(path) and name not in free
    ]
    no_faults(faults, "Import what computes with tensors where it is chosen")


def test_a_formula_imports_no_version_and_asks_for_no_device():
    faults = []
    for path in package_files():
        if path.parts[:2] != ("kernels", "reference"):
            continue
        for name, line in imports(path):
            is_operand = name.startswith("penstock.kernels.torch.packed.")  # weights as products read them
            if name.startswith(("triton", *VERSIONS)) and not is_operand:
                faults.append(f"{path}:{line} imports {name}")
        faults += [f"{path}:{line} {text}" for text, line in attributes(path, ".is_cuda", "device.type")]
    no_faults(faults, "What is quick on a device is a version of its own")


def test_the_package_imports_itself_by_relative_names_asserts_nothing_and_loads_no_code():
    """Faults are raised, because `python -O` removes asserts; `torch.load` may run code, safetensors may not."""
    faults = []
    for path in package_files():
        faults += [f"{path}:{line} {text}" for text, line in attributes(path, "torch.load") if text == "torch.load"]
        for node in statements(path):
            if isinstance(node, ast.Assert):
                faults.append(f"{path}:{node.lineno} asserts")
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            faults += [f"{path}:{node.lineno} imports {name}" for name in names if name.split(".")[0] == "penstock"]
    no_faults(faults, "Inside the package imports are relative, nothing is asserted, and torch.load is not used")


def test_every_file_says_what_it_does_and_neither_it_nor_a_function_outgrows_two_screenfuls():
    faults = [f"{path} has no docstring" for path in all_files() if not ast.get_docstring(parsed(path))]
    for path in all_files():
        is_written_by_a_script = "is written by `scripts/" in (ast.get_docstring(parsed(path)) or "")
        lines = 0 if is_written_by_a_script else len(source(path).splitlines())
        if lines > FILE_LINES_AT_MOST:
            faults.append(f"{path} has {lines} lines; at most {FILE_LINES_AT_MOST}")
        elif lines > FILE_LINES_WELCOME:
            warnings.warn(f"{path} has {lines} lines", stacklevel=1)
        for function in functions(path):
            length = lines_of(function)
            where = f"{path}:{function.lineno} {function.name}"
            if length > FUNCTION_LINES_AT_MOST:
                faults.append(f"{where} has {length} lines; at most {FUNCTION_LINES_AT_MOST}")
            elif length > FUNCTION_LINES_WELCOME:
                warnings.warn(f"{where} has {length} lines", stacklevel=1)
    no_faults(faults, "Describe these, or cut them into pieces")


def test_every_module_of_the_package_is_loaded_once():
    """With the root as the package, one wrong setting makes pytest import it under the checkout's name as well."""
    import penstock.protocol.errors

    homes: dict[Path, list[str]] = {}
    for name, module in list(sys.modules.items()):
        if file := getattr(module, "__file__", None):
            homes.setdefault(Path(file).resolve(), []).append(name)
    twice = [
        f"{file}: {', '.join(names)}"
        for file, names in homes.items()
        if len(names) > 1 and file.is_relative_to(ROOT) and not file.is_relative_to(ROOT / ".venv")
    ]
    assert Path(penstock.protocol.errors.__file__).resolve() == ROOT / "protocol" / "errors.py"
    no_faults(twice, "Loaded twice")
    packages = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("__init__.py")]
    no_faults(packages, "Tests are found by their files (importlib mode); remove")
