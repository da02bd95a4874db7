"""A caller's side of the detokenizer: messages as the engine sends them, and what comes of them, joined."""

from builders.tokenizer_kinds import KINDS

from penstock.frontend.text.detokenizer import Detokenizer
from penstock.frontend.text.incremental import Decoding
from penstock.protocol.messages import SequenceEnded, SequenceOpened, Tokens
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column, values, wide_column

DECODING = Decoding(KINDS["byte_level"]())
EOS = DECODING.backend.token_to_id("<|end|>")


def ids_of(text):
    return DECODING.backend.encode(text, add_special_tokens=False).ids


def opened(sequence=1, *, is_streamed=False, **params):
    return SequenceOpened(
        sequence_id=sequence, num_prompt=3, prompt_tail=column(ids_of("a prompt")), params=SamplingParams(**params),
        is_streamed=is_streamed, num_cached=2, arrival_time=100.0, inference_start_time=101.0, forward_time=0.5,
    )  # fmt: skip


def step(rows=None, **parts):
    """One message; `rows` is {sequence: token ids}."""
    rows = rows or {}
    return Tokens(
        sequence_ids=wide_column(rows),
        num_tokens=column(len(ids) for ids in rows.values()),
        token_ids=column(token_id for ids in rows.values() for token_id in ids),
        **parts,
    )


class Caller:
    """Feeds messages and joins the deltas of sequence 1, as the front end does."""

    def __init__(self, *messages):
        self.detokenizer = Detokenizer(DECODING)
        self.deltas, self.aborted = [], []
        for message in messages:
            deltas, aborted = self.detokenizer.feed(message)
            self.deltas += deltas
            self.aborted += aborted

    @property
    def text(self):
        return "".join(delta.text for delta in self.deltas)

    @property
    def token_ids(self):
        return [token_id for delta in self.deltas for token_id in values(delta.token_ids)]

    @property
    def end(self):
        assert [delta for delta in self.deltas if delta.finish_reason] == self.deltas[-1:], "one end, the last"
        last = self.deltas[-1]
        return last.finish_reason, last.stop_reason


def steps_of(token_ids, end, sizes=None):
    """The ids in steps of the given sizes, the end with the last of them."""
    messages, start = [], 0
    for size in sizes or [1] * len(token_ids):
        messages.append(step({1: token_ids[start : start + size]}))
        start += size
    messages.append(step({1: token_ids[start:]} if start < len(token_ids) else None, ended=[end]))
    return messages


def ended(reason="length", **parts):
    return SequenceEnded(1, reason, **parts)
