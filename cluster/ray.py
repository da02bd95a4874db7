"""Penstock on a Ray cluster: `deployment` for Serve, `Generate` for Data, and `app` for `serve run`.

    serve run penstock.cluster.ray:app model=Qwen/Qwen3-0.6B num_replicas=4

A replica holds a process tree as every other program does, so Ray needs nothing that one machine doesn't.
"""

import math
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from ..frontend.http.options import HttpOptions
from ..frontend.models.model_names import name_of
from ..protocol.errors import ConfigError
from ..protocol.fields.rules import shown
from ..protocol.fields.suggestion import suggestion
from ..protocol.options.config import EngineConfig

try:
    from ray import serve
    from ray.serve.config import AutoscalingConfig
except ImportError as error:
    raise ConfigError(f"Ray needs further packages ({error.name} is missing): pip install 'penstock[ray]'.") from error

from .dataset import Generate
from .door import Door
from .placement import Placement, checked_config
from .serving import Replica

__all__ = ["Generate", "app", "deployment"]

_POLICY = "penstock.cluster.serving:replicas_wanted"
_ROUTER = {"request_router_class": "penstock.cluster.routing:PrefixRouter", "request_routing_stats_period_s": 1.0}
_HEALTH_SECONDS, _HEALTH_TIMEOUT = 5.0, 15.0  # between two looks at a replica, and for its answer
# Arguments whose values are texts, also those that look like numbers.
_TEXTS = {"name"} | {name for name, kind in get_type_hints(EngineConfig).items() if kind in (str, str | None)}
# A door ends after the replicas of an application that is replaced, so that it can ask the new ones.
_DOOR_SECONDS = 30.0
# So that a lost node isn't the door of everybody. Serve prefers one on the node that a request came to.
_NUM_DOORS = 2


def deployment(
    model: str,
    *,
    name: str | None = None,
    num_replicas: int | None = None,
    autoscaling: Mapping[str, Any] | None = None,
    num_cpus: float | None = None,
    drain: float = 30.0,
    http: Mapping[str, Any] | None = None,
    **options: Any,
) -> serve.Application:
    """A Serve application that answers all of the daemon's endpoints with replicas of a model.

    `autoscaling` is Serve's `autoscaling_config` (`min_replicas`, `max_replicas`, …); without it there are
    `num_replicas` (1). A replica has `num_cpus` cores, by default its share of a node's, and as many GPUs as
    `tensor_parallel_size` where nodes have some. It gets `drain` seconds to finish what it answers when it is to end.
    `http` holds options of the server such as `api_key_file` and `allowed_hosts`; all others are those of `LLM`.
    """
    if autoscaling is not None and num_replicas is not None:
        raise ConfigError("num_replicas and autoscaling exclude one another: give either.")
    config = checked_config(model, options, beside=get_type_hints(deployment))
    _check_scale(autoscaling, drain, name)
    settled = dict(http or {})
    limits = HttpOptions(**settled)
    most = (autoscaling or {}).get("max_replicas", 1 if num_replicas is None else num_replicas)
    placement = Placement.of(config, most, num_cpus)
    names = [name or config.served_model_name or name_of(config.model)]
    scale: dict[str, Any] = {"num_replicas": most}
    if autoscaling is not None:
        scale = {"autoscaling_config": {"policy": {"policy_function": _POLICY}, **autoscaling}}
    common: dict[str, Any] = {
        # Serve's own limit is 5; the application behind it has limits of its own, and says them to clients.
        "max_ongoing_requests": limits.max_requests + limits.max_queue,
        "max_queued_requests": limits.max_requests + limits.max_queue,
        "health_check_period_s": _HEALTH_SECONDS,
        "health_check_timeout_s": _HEALTH_TIMEOUT,
    }
    placed = {
        "placement_group_bundles": [placement.bundle],
        "placement_group_strategy": "STRICT_PACK",  # a tree's ranks are on one machine
        "ray_actor_options": {"num_cpus": placement.num_cpus, "num_gpus": placement.num_gpus},
    }
    arguments = (model, names, settled, placement.options(options))
    if most == 1:
        replica = serve.ingress()(Replica)
        only = serve.deployment(replica, name=names[0], graceful_shutdown_timeout_s=drain, **common, **placed, **scale)
        return only.bind(*arguments)
    several = serve.deployment(
        Replica,
        name=names[0],
        request_router_config=_ROUTER,
        graceful_shutdown_timeout_s=drain,
        **common,
        **placed,
        **scale,
    )
    door = serve.deployment(
        serve.ingress()(Door),
        name=f"{names[0]}-door",
        num_replicas=_NUM_DOORS,
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=drain + _DOOR_SECONDS,
        **common,
    )
    return door.bind(several.bind(*arguments), settled)


def _check_scale(autoscaling: Mapping[str, Any] | None, drain: float, name: str | None) -> None:
    """Refuse what Serve would take no notice of, or refuse in words of its own."""
    known = AutoscalingConfig.model_fields
    for key in autoscaling or {}:
        if key not in known:
            raise ConfigError(f"autoscaling has no {shown(key)}.{suggestion(key, known)}")
    try:
        AutoscalingConfig(**(autoscaling or {}))
    except ValueError as error:
        raise ConfigError(f"autoscaling={dict(autoscaling or {})}: {_first_words(error)}") from error
    if isinstance(drain, bool) or not isinstance(drain, int | float) or not 0 <= drain < math.inf:
        raise ConfigError(f"drain={shown(drain)}: must be seconds, 0 or more.")
    if name == "":
        raise ConfigError("name='': leave it out for the model's name, or give one.")


def _first_words(error: ValueError) -> str:
    """The first complaint of pydantic, without its addresses."""
    faults: list[Any] = getattr(error, "errors", list)()
    return f"{faults[0]['msg']}." if faults else str(error)


def app(arguments: dict[str, Any]) -> serve.Application:
    """The builder for `serve run` and Serve's YAML: its arguments are those of `deployment`, also as text."""
    given = {name: _value(name, text) for name, text in arguments.items()}
    if not isinstance(given.get("model"), str):
        raise ConfigError("A model is needed: serve run penstock.cluster.ray:app model=NAME.")
    return deployment(**given)


def _value(name: str, text: Any) -> Any:
    """A value of the command line, where everything is text: of options that aren't texts themselves, JSON."""
    if not isinstance(text, str) or name in _TEXTS:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
