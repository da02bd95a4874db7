"""Every option and every parameter is read by the code that it is for.

One that is checked, documented and handed on, and then read by nobody, is a promise that nothing keeps.
"""

import msgspec
import pytest
from builders.cases import for_each
from builders.readings import Readings, sources

from penstock import BeamSearchParams, GuidedDecodingParams
from penstock.frontend.daemon.settings import DaemonSettings
from penstock.frontend.http.options import HttpOptions
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.parameters.sampling import SamplingParams

STRUCTS = {
    SamplingParams: "protocol/parameters/sampling.py",
    BeamSearchParams: "protocol/parameters/beams.py",
    GuidedDecodingParams: "protocol/parameters/guided.py",
    EngineConfig: "protocol/options/config.py",
    HttpOptions: "frontend/http/options.py",
    DaemonSettings: "frontend/daemon/settings.py",
}
# Here they are only handed on, shown or compared; the stand-in is a worker for tests.
NO_USE = ("protocol/", "frontend/http/", "frontend/commands/", "frontend/daemon/settings.py", "worker/stand_in/")
# The front end's own options are used in no other room.
ELSEWHERE = ("protocol/", "engine/", "worker/", "kernels/")
# Other ways to write a field, into which they are folded when the struct is made (test_options_and_parameters.py).
FOLDED = {"frequence_penalty", "max_thinking_tokens", "structural_tag", "response_format", "guided_json",
          "guided_regex", "guided_choice", "guided_grammar", "guided_json_object", "guided_structural_tag"}  # fmt: skip


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return sources()


def unread(struct: type[msgspec.Struct], texts: dict[str, str], further: tuple[str, ...] = ()) -> set[str]:
    names = {*struct.__struct_fields__, *further} - FOLDED
    no_use = ELSEWHERE if struct in (HttpOptions, DaemonSettings) else NO_USE
    found = Readings(struct.__name__, STRUCTS[struct], texts).of(names, left_out=no_use)
    return {name for name, files in found.items() if not files}


@for_each("struct", STRUCTS)
def test_every_field_is_read_by_the_code_that_it_is_for(struct, texts):
    assert unread(struct, texts, further=("is_for_nobody",)) == {"is_for_nobody"}


# A reading of each kind: as an attribute, through a table, in a method of the struct's own.
@for_each("struct, file, name, reading", [
    (SamplingParams, "frontend/text/detokenizer.py", "skip_special_tokens", "params.skip_special_tokens"),
    (SamplingParams, "worker/sampler/parameters.py", "min_p", '"min_p"'),
    (EngineConfig, "worker/start/start.py", "lm_head_fp32", "config.lm_head_fp32"),
    (EngineConfig, "frontend/parsing/parser_choice.py", "tool_call_parser", '"tool_call_parser"'),
    (EngineConfig, "protocol/options/config.py", "max_num_seqs", "self.max_num_seqs"),
    (BeamSearchParams, "engine/decoding/beams.py", "length_penalty", "self.params.length_penalty"),
    (HttpOptions, "frontend/http/connections/connection.py", "idle_timeout", "self._options.idle_timeout"),
    (DaemonSettings, "frontend/daemon/models.py", "load_wait", "settings.load_wait"),
])  # fmt: skip
def test_a_reading_that_is_lost_is_noticed(struct, file, name, reading, texts):
    assert reading in texts[file]
    without = texts[file].replace(reading, reading.replace(name, "something_else"))
    assert unread(struct, {**texts, file: without}) == {name}
