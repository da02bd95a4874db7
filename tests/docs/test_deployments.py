"""The files of docs/examples/deploy: valid for what reads them, and their command lines for Penstock."""

import configparser
import re
import shlex
from pathlib import Path

import kubernetes_validate
import yaml
from builders.cases import for_each

from penstock.frontend.cli import parser_of
from penstock.frontend.commands.daemon.daemon_options import settings_of
from penstock.frontend.http.operations import OPERATIONS
from penstock.frontend.http.requests.guard import WITHOUT_KEY
from penstock.protocol.options.config import EngineConfig

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "deploy"
KUBERNETES = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
SKYPILOT = yaml.safe_load((FOLDER / "skypilot.yaml").read_text())
[DEPLOYMENT] = (each for each in KUBERNETES if each["kind"] == "Deployment")
[CONTAINER] = DEPLOYMENT["spec"]["template"]["spec"]["containers"]


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, strict=False)
    found.optionxform = str
    found.read_string((FOLDER / "penstock@.service").read_text())
    return found


def command_lines() -> dict[str, list[str]]:
    """The words behind `penstock`, with the values that whoever runs them fills in."""
    of_unit = shlex.split(unit()["Service"]["ExecStart"].replace("%i", "1").replace("%t", "/run"))
    of_task = shlex.split(SKYPILOT["run"].strip().splitlines()[-1])
    return {
        "kubernetes": [word.replace("$(POD_IP)", "10.0.0.7") for word in CONTAINER["args"]],
        "skypilot": of_task[of_task.index("serve") :],
        "systemd": of_unit[of_unit.index("serve") :],
    }


@for_each("version", ("1.31", "1.37"))
def test_kubernetes_takes_each_document(version):
    assert [each["kind"] for each in KUBERNETES] == ["PersistentVolumeClaim", "Deployment", "Service"]
    for document in KUBERNETES:
        kubernetes_validate.validate(document, version, strict=True)


@for_each("kind", ("kubernetes", "skypilot", "systemd"))
def test_the_command_line_of_each_file_is_one_of_penstock(kind, tmp_path):
    (keys := tmp_path / "keys").write_text("a key\n")
    serve, *words = command_lines()[kind]
    assert serve == "serve"
    words = [re.sub(r"(?<=^--api-key-file=).*", str(keys), word) for word in words]
    words = [str(keys) if before == "--api-key-file" else word for before, word in zip(["", *words], words)]
    arguments = parser_of("serve").parse_args(words)
    settings = settings_of(arguments)
    assert settings.models, "a model is named"
    if kind == "kubernetes":
        [model] = settings.models.values()
        assert isinstance(model.config, EngineConfig) and model.config.kv_events_config.topic == (
            "kv@10.0.0.7@Qwen/Qwen3-0.6B"
        )


def test_probes_ask_for_what_needs_no_key_and_the_grace_is_longer_than_the_drain():
    paths = {each.path for each in OPERATIONS}
    probes = [CONTAINER[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert set(probes) <= paths & WITHOUT_KEY
    settings = settings_of(parser_of("serve").parse_args(["pocket"]))
    assert DEPLOYMENT["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > settings.drain
    assert int(unit()["Service"]["TimeoutStopSec"]) > settings.drain
    dockerfile = (FOLDER.parents[2] / "Dockerfile").read_text()
    security = DEPLOYMENT["spec"]["template"]["spec"]["securityContext"]
    assert f"--uid {security['runAsUser']} " in dockerfile and "EXPOSE 8000" in dockerfile
    mounted = {each["mountPath"] for each in CONTAINER["volumeMounts"]}
    assert {"/models", "/tmp"} <= mounted, "a read-only container writes nowhere else"


def test_the_units_directives_are_systemds_own():
    known = {
        "Unit": {"Description", "After"},
        "Service": {"User", "ExecStart", "ExecReload", "RuntimeDirectory", "RuntimeDirectoryMode", "CacheDirectory",
                    "Environment", "Restart", "TimeoutStopSec", "KillMode", "NoNewPrivileges", "ProtectSystem",
                    "ProtectHome"},
        "Install": {"WantedBy"},
    }  # fmt: skip
    assert {name: set(unit()[name]) for name in unit().sections()} == known
