"""A package with entry points, laid into a folder as an installer would: its module, and what it declares."""

from pathlib import Path


def plugin_package(folder: Path, name: str, source: str, entry_points: dict[str, dict[str, str]]) -> Path:
    """`entry_points` are groups, each with names and what in the module they stand for."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(source)
    described = folder / f"{name}-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, points in entry_points.items():
        lines += [f"[{group}]", *(f"{point} = {name}:{meant}" for point, meant in points.items())]
    (described / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder
