"""Judges vectors, scores, classes and decisions: their prompts are computed again, and each number is compared.

The body's form says where numbers stand in it. Which they must be, and in which order, follows from what was computed
now, and from the receipt's view. Last the bits' digest in the receipt is compared.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy
from msgspec.structs import replace

from ...protocol.errors import RequestError
from ..http.endpoints.numbers.rerank import shortened
from ..models.pooled_model import PooledModel
from ..pooling.scores import cosine
from ..receipts.numbers import NumbersReceipt, digest_of
from ..receipts.receipt import VERSIONS, unlike
from ..requests.prompts import ParsedPrompt
from .bodies import Difference, differing
from .number_forms import FORMS, Computed, Form
from .repeated import without_spaces
from .verdict import Verdict
from .written_numbers import WrittenNumber, is_same

if TYPE_CHECKING:
    from ..session.session import Session

# A prompt whose text was cut may have so many tokens less than the limit.
_SLACK = 8


class NumbersJudge:
    """Has prompts computed again, unless it is known already that this model is another one."""

    def __init__(self, session: "Session[Any]") -> None:
        self._session = session
        self._here: NumbersReceipt | None = None  # the last receipt of this model

    def prompts(self, receipt: NumbersReceipt) -> Sequence[Any]:
        """What is to be computed for a receipt; refusals if it can't be judged."""
        try:
            if self._here is not None and receipt.lora_name == self._here.lora_name:
                _check(receipt, self._here)
            return _parsed_prompts(receipt)
        except RequestError as error:
            return [error] * len(receipt.prompts)

    def verdict(self, name: str, body: Mapping[str, Any], receipt: NumbersReceipt, outputs: Sequence[Any]) -> Verdict:
        failed = next((output for output in outputs if output.error_code != 200), None)
        if failed is not None:
            return Verdict("not judged", name, failed.error_msg)
        self._here = NumbersReceipt.read(outputs[0].receipt)
        try:
            _check(receipt, self._here)
        except RequestError as error:
            return Verdict("not judged", name, str(error))
        computed = Computed(receipt, [output.outputs.data for output in outputs], self._model)
        return _verdict(self._session, name, body, computed)

    @cached_property
    def _model(self) -> PooledModel | None:
        return self._session.pooled


def _parsed_prompts(receipt: NumbersReceipt) -> list[ParsedPrompt]:
    """The prompts as they were computed, to be computed again."""
    pooling = receipt.pooling
    sampling = [replace(each.as_sampling(), lora_name=receipt.lora_name) for each in pooling]
    return [
        ParsedPrompt(None, each.ids, sampling[each.params], pooled=pooling[each.params], second_text=each.second_text)
        for each in receipt.prompts
    ]


def _check(receipt: NumbersReceipt, here: NumbersReceipt) -> None:
    """Raise if the model that has made the receipt `here` can't judge another one."""
    if (reason := unlike(receipt, here.facts, here.adapter)) is not None:
        raise RequestError(reason)
    if here.facts["kernels"].startswith(("torch", "triton")) and "option deterministic" not in here.facts:
        raise RequestError("these kernels' numbers depend on their company unless deterministic=True")


def _verdict(session: "Session[Any]", name: str, body: Mapping[str, Any], computed: Computed) -> Verdict:
    form = next(form for form in FORMS if form.fits(body))
    try:
        expected = form.expected(body, computed)
    except (ValueError, ArithmeticError, LookupError, StopIteration, TypeError, AttributeError):
        # another number of prompts than the form has, or a form that only begins like it
        return Verdict("differs", name, "its receipt is of another kind of answer")
    found = differing(expected, {key: body.get(key) for key in expected}, is_same)
    if found is not None:
        return _differs(session, name, form, body, computed, found)
    if (foreign := _foreign_text(session, form, body, computed)) is not None:
        return Verdict("differs", name, f"{foreign.path}: the receipt is of another text", had=foreign.had)
    for number, (prompt, array) in enumerate(zip(computed.receipt.prompts, computed.arrays, strict=True)):
        if prompt.digest != (digest := digest_of(array)):
            return Verdict(
                "differs", name, f"the receipt's digest of prompt {number}", 0, None, prompt.digest.hex(), digest.hex()
            )
    return Verdict("proved", name)


def _differs(
    session: "Session[Any]", name: str, form: Form, body: Mapping[str, Any], computed: Computed, found: Difference
) -> Verdict:
    far = None
    for (path, vector), array in zip(form.vectors(body), computed.arrays):
        if found.path == path or found.path.startswith(f"{path}["):
            numbers = _numbers_of(vector, array)
            found = _in_vector(found, path, numbers, array)
            far = None if numbers is None else cosine(numbers.ravel(), array.ravel())
            break
    plan, made_by = session.plan, computed.receipt.facts.get(VERSIONS[1])
    is_other = plan is not None and plan.kernels_digest != made_by
    reason = f"{found.path} (it was made by another version of the kernels)" if is_other else found.path
    return Verdict("differs", name, reason, had=found.had, draws=found.expected, cosine=far)


def _numbers_of(vector: Any, array: numpy.ndarray) -> numpy.ndarray | None:
    """The numbers of a body's vector; None unless it has the form of the computed one."""
    try:
        if isinstance(vector, str):
            return numpy.frombuffer(base64.b64decode(vector, validate=True), "<f4").reshape(array.shape)
        return numpy.array(vector, numpy.float64).reshape(array.shape)
    except (ValueError, TypeError, binascii.Error):
        return None


def _in_vector(found: Difference, path: str, numbers: numpy.ndarray | None, array: numpy.ndarray) -> Difference:
    """Name the first number that differs, where a vector is base64."""
    if not isinstance(found.had, str) or isinstance(found.had, WrittenNumber) or numbers is None:
        return found
    places = numpy.flatnonzero(numbers.ravel().view("<u4") != array.ravel().view("<u4"))
    if not len(places):
        return found
    place = int(places[0])
    return Difference(f"{path}[{place}]", float(numbers.ravel()[place]), float(array.ravel()[place]))


# --- texts that a body repeats ---------------------------------------------------------------------------------------


def _foreign_text(
    session: "Session[Any]", form: Form, body: Mapping[str, Any], computed: Computed
) -> Difference | None:
    """The first text of a body that doesn't stand in its prompt."""
    for path, number, text in form.texts(body, computed.receipt):
        if not isinstance(text, str) or not _stands_in(session, text, number, computed):
            return Difference(path, text, None)
    return None


def _stands_in(session: "Session[Any]", text: str, number: int, computed: Computed) -> bool:
    """Look for a text in its prompt; white space doesn't count. Of a text that was cut, the rest must stand there."""
    receipt, tokenizer, model = computed.receipt, session.tokenizer, computed.model
    prompt = receipt.prompts[number]
    if most := receipt.view.document_tokens:
        [text] = shortened(tokenizer, [text], most)
    ids = tokenizer.encode(text, add_special_tokens=False)
    wanted = without_spaces(tokenizer.decode(ids, skip_special_tokens=False))
    own = prompt.ids[prompt.second_text :]  # of a pair, where the tokenizer marks the second text
    if wanted in without_spaces(tokenizer.decode(own, skip_special_tokens=False)):
        return True
    params = receipt.params[prompt.params]
    if (cut := params.get("truncate_prompt_tokens")) is None:
        return False
    limits = [cut if cut > 0 else None, model and model.longest, session.plan and session.plan.max_model_len]
    if len(prompt.ids) + _SLACK < min(limit for limit in limits if limit):
        return False
    rest = without_spaces(tokenizer.decode(own, skip_special_tokens=True))
    if params.get("truncation_side") == "left":
        return wanted.endswith(rest) or rest.endswith(wanted)
    if model is not None and model.pairs in ("template", "qwen3"):  # words follow
        return wanted[:_SLACK] in rest
    return any(rest.endswith(wanted[:end]) for end in range(len(wanted), 0, -1) if end <= len(rest))
