"""Every script of docs/examples runs and shows what it promises.

Those that use a bundled model as it is run one after another in one interpreter, over one tree; `-m long` runs each as
it stands, in an interpreter of its own.
"""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from builders.cases import for_each

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))
# Each of these loads a model, or two, with options of its own.
WITH_OPTIONS = {"allspark_two_models.py", "lora.py", "priorities.py", "quantization.py", "trace.py"}
# What each prints, as a pattern: the point of the script, not every character of it.
SHOWS: dict[str, str] = {
    "allspark_engine.py": r"Rome True\n\d+ tokens in, \d+ out\nThe model 'pocket' has no such request",
    "allspark_two_models.py": r"eight bits: .*5\nfour bits: .*\d",
    "async_answers.py": r"9\ncold\nI am pocket, a",
    "batch.py": r"What is 25 \+ 8\? 33\n(.*\n)*What is 47 \+ 15\? 62",
    "beam_search.py": r"-0\.\d+ 'Rome'\n( +-\d+\.\d+ ['\"].*['\"]\n){3}",
    "chat.py": r"Tokyo\n> What is my name\?\n.*Ada",
    "completion.py": r"str 42 stop\nlist 42 stop\ndict 42 stop\ndict 42 stop",
    "decide.py": r"capital: Rome \['\d\.\d\d', '\d\.\d\d'\]\nthe sky is blue: 0\.\d\d\nshare .*e-",
    "errors.py": r"ConfigError: block_size.*\nRequestError: temperature.*\n200 length None\n(400 error \w.*\n){4}",
    "guided_json.py": r"\{'name': '.*', 'age': \d+, 'colour': '(red|green|blue)'\}\n\['age', 'colour', 'name'\]",
    "guided_shapes.py": r"regex: \d{4}-\d\d-\d\d\nchoice: (yes|no|perhaps)\ngrammar: [\d+]+=\d+\nfree: ",
    "logprobs.py": r"'R' rank 1 \{'R': '0\.99.*\n(.*\n)*the whole answer: 0\.99",
    "lora.py": r"None 'Rome'\nmine '(?!Rome').*\n\['mine'\]",
    "many_prompts.py": r"200 answers; the most frequent: \[\('\d+', \d+\)",
    "measured.py": r"\d+ tokens in, \d out\nwaited \d.*\n\d+ steps for \d+ tokens",
    "prefix_cache.py": r" 0 of (?s:.*)320 of \d+ .*\(no salt\)\n +0 of .*\n +320 of .*\(another user\)",
    "priorities.py": r"'request 5'.*'request 4'.*'request 3'.*'request 2'.*'request 1'",
    "prompt_logprobs.py": r"42<\|im_end\|>: (9\.\d+e-01|1.00e\+00)\n41<\|im_end\|>: .*e-(0[2-9]|\d[1-9])\nParis",
    "quantization.py": r"Rome",
    "repetition.py": r"\{\} ['\"].*['\"] length None\n(?s:.*)['\"].*['\"] stop repetition",
    "samples_and_seeds.py": r"0 ['\"].*['\"]\n1 ['\"].*['\"]\n2 ['\"].*['\"]",
    "steered_words.py": r"'Paris'\n.*\? \W(?!Paris\b).*\n.*'blue'\n.*\? \W(?!blue\b).*",
    "stop_strings.py": r"7, 8' stop None\n'3, 4, 5, ' stop 6\n'3, 4, 5, 6' stop 6\n'3' stop \d+\n.*\n.* length",
    "stream.py": r"8\+5=13(.*\n)*.*623\nleft after \d+ deltas",
    "thinking.py": r"thought: '8\+5=13.*\nanswer: 623\nwithout: \d+ None\ncut short: '8\+5=1.*' \d+",
    "tokenizer.py": r"tokens of 2048\nThe sky is blue. 天空是蓝色的。\n<\|im_start\|>user",
    "tools.py": r"tool_calls\nget_weather \{'city': 'Paris'\}\n.*21",
    "trace.py": r"events, among them .*\bforward, .*\bplan, sample\b",
}


@for_each("name", [name for name in SCRIPTS if name not in WITH_OPTIONS])
def test_a_script_shows_what_it_promises(name, bundled_trees, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name])
    with bundled_trees.in_place():
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    said = capsys.readouterr().out
    assert re.search(SHOWS[name], said), said


@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_by_itself(name, tmp_path):
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert re.search(SHOWS[name], ran.stdout), ran.stdout


def test_the_list_names_every_script_and_each_opens_with_what_it_shows():
    assert sorted(re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text())) == SCRIPTS == sorted(SHOWS)
    firsts = [(EXAMPLES / name).read_text().splitlines()[0] for name in SCRIPTS]
    assert [first for first in firsts if not re.fullmatch(r'"""[A-Z].*[.](""")?', first)] == []
