"""The threads of one model: a worker, tokenizer or template that is slow delays this model alone.

Each kind of work has its own threads: a template without end leaves adapters, texts and answers as they are.
"""

import math
from dataclasses import dataclass, field

from .threads import Threads


def request_template_threads() -> Threads:
    """For templates of clients. As many processes as threads: those without end share the cores with good ones."""
    return Threads("Chat templates", 8)


@dataclass(slots=True)
class ModelThreads:
    templates: Threads = field(default_factory=lambda: Threads("Conversations", 2))
    texts: Threads = field(default_factory=lambda: Threads("Texts", 2, most_waiting=2**16))  # cut into tokens
    # Long ones, put together: what was computed waits as long as it must.
    answers: Threads = field(default_factory=lambda: Threads("Answers", 2, patience=math.inf))
    adapters: Threads = field(default_factory=lambda: Threads("Questions about adapters", 2, most_waiting=64))
    # Of clients. The daemon has one for all of its models.
    request_templates: Threads = field(default_factory=request_template_threads)

    def close(self) -> None:
        """Whoever waits for the model's own is told."""
        for threads in (self.templates, self.texts, self.answers, self.adapters):
            threads.close()
