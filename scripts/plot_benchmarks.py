"""Draws and tabulates a record that `bench_peers.py --output` kept.

    python scripts/plot_benchmarks.py figures.json picture.svg

It prints the table and writes the picture.
"""

import argparse
import json
from pathlib import Path

from peers.drawing import picture
from peers.report import markdown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    record = json.loads(arguments.record.read_text())
    arguments.picture.write_text(picture(record))
    print(markdown(record))


if __name__ == "__main__":
    main()
