"""The door of receipts: begins those that requests ask for, and says which of them this model can judge."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ...protocol.errors import RequestError
from ...protocol.memory_plan import MemoryPlan
from ...protocol.messages import Prompt
from ...protocol.options.config import EngineConfig
from ...protocol.parameters.sampling import SamplingParams
from .receipt import Receipt, ReceiptDraft, unlike
from .written import MOST_BESIDE_IDS, planes

if TYPE_CHECKING:
    from ..models.facts import ModelFacts
    from ..requests.prompts import ParsedPrompt

_OF_ANSWER = 1 << 16  # bytes of a receipt for how a body shows an answer, and how each sample ends


class ReceiptDoor:
    """Begins the receipts that requests ask for, and checks whether this model can judge one."""

    def __init__(self, facts: "ModelFacts", config: EngineConfig, plan: MemoryPlan) -> None:
        self.facts = facts
        self._config = config
        self._plan = plan
        self._shared: tuple[SamplingParams, SamplingParams, dict[str, Any]] | None = None  # by the last requests

    def begun(self, parsed: "ParsedPrompt", prompt: Prompt, functions: list[Any], end: str) -> ReceiptDraft:
        """What a request's receipt has before its answer. The model's first one waits until its files are digested.
        Raises `RequestError` if it could not be read later."""
        beams = None if parsed.beams is None else msgspec.to_builtins(parsed.beams)
        receipt = Receipt(
            facts=self.facts.of_model(),
            params=self._params_of(parsed.params, prompt.params, prompt.seed),
            prompt=planes(prompt.token_ids),
            samples=[],
            adapter=self.facts.of_adapter(prompt.params.lora_name),
            is_chat=parsed.is_chat,
            tools=[{"type": "function", "function": function} for function in functions],
            end=end,
            beams=beams,
            media=[medium.digest for medium in prompt.media],
        )
        try:
            num_bytes = len(msgspec.msgpack.encode(replace(receipt, prompt=b"")))
        except UnicodeEncodeError as error:
            raise RequestError(f"A receipt can't have this request's parameters and tools: {error}.") from error
        _check_size(num_bytes, prompt.params)
        return ReceiptDraft.of(receipt, prompt.params.n)

    def _params_of(self, params: SamplingParams, settled: SamplingParams, seed: int) -> dict[str, Any]:
        """`params_of`, which is the same but for the seed for requests that share their parameters."""
        shared = self._shared  # which another thread may replace
        if shared is None or shared[0] is not params or shared[1] is not settled:
            shared = self._shared = params, settled, params_of(params, settled, seed)
        return {**shared[2], "seed": seed}

    def check(self, receipt: Receipt, params: SamplingParams, ids: Sequence[int], media: list[bytes]) -> None:
        """Raise if this model can't judge what the receipt is of, or if it is of another prompt than the given one."""
        if reason := unlike(receipt, self.facts.of_model(), self.facts.of_adapter(params.lora_name)):
            raise RequestError(reason)
        if self._plan.kernels.startswith(("torch", "triton")) and not self._config.deterministic:
            raise RequestError("these kernels' answers depend on their company unless deterministic=True")
        longest = max((len(sample.ids) for sample in receipt.samples), default=0)
        if (need := len(receipt.prompt_ids) + longest) > self._plan.max_model_len:
            raise RequestError(f"it has {need:,} tokens, and here max_model_len is {self._plan.max_model_len:,}")
        if receipt.media and not media:
            raise RequestError("its prompt has pictures or videos, which aren't given (--input)")
        if media != receipt.media or list(ids) != receipt.prompt_ids:
            raise RequestError("the given prompt isn't the one that was answered")
        if len(receipt.samples) != params.n:
            raise RequestError(f"it has {len(receipt.samples)} answers, and its parameters ask for {params.n}")


def params_of(params: SamplingParams, settled: SamplingParams, seed: int) -> dict[str, Any]:
    """The parameters in full, with what the model and its length have settled, and without what concerns only the
    request's way through the engine."""
    own = replace(
        params, seed=seed, max_tokens=settled.max_tokens, min_tokens=settled.min_tokens, max_length=None, min_length=0,
        early_stop=settled.early_stop, priority=0, cache_salt=None, continue_on_restart=True,
        receipt=False, prediction=None,
    )  # fmt: skip
    return {name: value for name, value in msgspec.to_builtins(own).items() if value != _DEFAULTS.get(name)}


_DEFAULTS = msgspec.to_builtins(SamplingParams())


def _check_size(num_bytes: int, params: SamplingParams) -> None:
    """Refuse a request whose receipt could be too long to be read. `num_bytes`: what it has before the answer, but the
    prompt's ids."""
    ending = max((len(each.encode(errors="surrogatepass")) for each in params.stop or ()), default=0)
    if (most := num_bytes + params.n * ending + _OF_ANSWER) > MOST_BESIDE_IDS:
        raise RequestError(
            f"A receipt has at most {MOST_BESIDE_IDS:,} bytes besides token ids, and with this request's parameters "
            f"and tools it could have {most:,}. Give shorter ones; each line of a job has a receipt, shown or not."
        )
