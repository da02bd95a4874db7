"""The threads of one model: a worker, tokenizer or template that is slow delays this model alone.

Each kind of work has its own threads: a template without end leaves adapters, texts and answers as they are.
"""

import math
from dataclasses import dataclass, field

from .threads import Threads


def request_template_threads() -> Threads:
    """For templates that come with requests. Several, so that one without end doesn't block the others."""
    return Threads("Chat templates", 8)


@dataclass(slots=True)
class ModelThreads:
    templates: Threads = field(default_factory=lambda: Threads("Conversations", 2))
    texts: Threads = field(default_factory=lambda: Threads("Texts", 2, most_waiting=2**16))  # cut into tokens
    # Long answers are formatted here; a computed answer is never refused, so it waits without limit.
    answers: Threads = field(default_factory=lambda: Threads("Answers", 2, patience=math.inf))
    adapters: Threads = field(default_factory=lambda: Threads("Questions about adapters", 2, most_waiting=64))
    # Of clients. The daemon has one for all of its models.
    request_templates: Threads = field(default_factory=request_template_threads)

    def close(self) -> None:
        """Close the model's own threads; their waiting jobs fail."""
        for threads in (self.templates, self.texts, self.answers, self.adapters):
            threads.close()
