"""DashInfer's face (`penstock.allspark`): models driven by hand in an `Engine`, answers read from queues.

It translates its users' calls into options, parameters and requests of the sessions that `LLM` uses, with a
process tree for each model. Begin with `engine.py`, then `installed_model.py` and `result_queue.py`;
`configuration/` has the tables of names.
"""

from .configuration.generation_config import ASGenerationConfigBuilder
from .configuration.model_config import AsModelConfig
from .configuration.runtime_builder import AsModelRuntimeConfigBuilder
from .engine import Engine
from .installed_model import ModelState
from .loaders.dashinfer_model import DashInferModel
from .loaders.hugging_face_model import HuggingFaceModel
from .loaders.loader import ModelLoader
from .names import AsCacheMode, GenerateRequestStatus, MultiMediaInfo, RoPEScaleMethod, TargetDevice, VocabType
from .request_handle import RequestHandle
from .result_queue import GeneratedElements, ResultQueue
from .statistics import AsEngineStat
from .status import AsStatus

__all__ = [
    "ASGenerationConfigBuilder",
    "AsCacheMode",
    "AsEngineStat",
    "AsModelConfig",
    "AsModelRuntimeConfigBuilder",
    "AsStatus",
    "DashInferModel",
    "Engine",
    "GenerateRequestStatus",
    "GeneratedElements",
    "HuggingFaceModel",
    "ModelLoader",
    "ModelState",
    "MultiMediaInfo",
    "RequestHandle",
    "ResultQueue",
    "RoPEScaleMethod",
    "TargetDevice",
    "VocabType",
]
