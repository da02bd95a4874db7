"""A model opened in its own process tree, with its tokenizer, its door and its templates.

The daemon opens its models this way, too. For its clients it renders templates in separate processes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.errors import ConfigError
from ...protocol.media import MediaPlan
from ...protocol.options.config import EngineConfig
from ...protocol.options.foreign_options import notices
from ...protocol.options.nodes import require_front_end
from ...protocol.options.plugins import LOGITS_PROCESSORS, require_installed
from ..console import logs
from ..console.start_table import start_words
from ..media.door import MediaDoor
from ..media.sight import Sight
from ..models.draft_model import check_vocabulary, with_draft_model
from ..models.facts import ModelFacts, facts_of
from ..models.file_stamps import FileStamps
from ..models.generation_config import default_params
from ..models.model_files import find_model
from ..models.pooled_model import PooledModel, find_pooled_model
from ..parsing import Parsings, settled
from ..receipts.door import ReceiptDoor
from ..requests.door import Door
from ..text import end_tokens
from ..text.chat_templates import chat_templates, special_tokens
from ..text.template_process import TemplateProcesses
from .adapters import Adapters
from .engine_transport import EngineTransport
from .rendering import RenderingSession
from .threads import ModelThreads
from .tree.going_on import decoded_again
from .tree.transport import TreeTransport
from .tree.tree import Tree

if TYPE_CHECKING:
    from ..replicas.adapters import ReplicaAdapters


class PrivateSession(RenderingSession):
    """Call `start` and `read_tokenizer` in either order, then `wait_until_ready` before the first request."""

    transport: EngineTransport
    adapters: "Adapters | ReplicaAdapters"

    def __init__(self, model: str | os.PathLike[str], options: dict[str, Any]) -> None:
        """Find the model and read the files next to its weights; start nothing yet."""
        self.plan = None
        self.daemon = None
        self.sight = None  # of a vision model, once the tokenizer is read
        self.model_stamps: FileStamps = frozenset()  # if the daemon has opened it
        self._unread = set()
        self.config = EngineConfig.from_options(model, **options)
        require_front_end(self.config)
        require_installed("logits_processors", LOGITS_PROCESSORS, self.config.logits_processors or ())
        self.is_quiet = logs.is_quiet(self.config.quiet)
        for notice in notices(options):
            logs.say(notice, quiet=self.is_quiet)
        logs.say_places_once(quiet=self.is_quiet)
        self.files = find_model(self.config.model, self.config.tokenizer, self.config.revision, is_quiet=self.is_quiet)
        self.files = with_draft_model(self.files, self.config)
        if (pooled := find_pooled_model(self.files.folder, self.config.runner)) is not None:
            self.files = replace(self.files, pooled=pooled)
            self.config = msgspec.structs.replace(self.config, runner="pooling")
        self.default_params = default_params(self.files.folder)
        for notice in Sight.check(self.files.folder, self.config):
            logs.say(notice, quiet=self.is_quiet)
        self.chat_template = _template_text(self.config.chat_template)
        # Before the tree starts: its detokenizer must know which marks to show.
        folder = self.files.tokenizer_folder
        template = self.chat_template or chat_templates(folder)
        self.config = settled(self.config, template, partial(special_tokens, folder))
        self.parsings = Parsings.of(self.config, template)

    @property
    def tree_config(self) -> EngineConfig:
        return self.config

    @property
    def pooled(self) -> PooledModel | None:
        return self.files.pooled

    @property
    def model_folders(self) -> tuple[Path, Path]:
        return self.files.folder, self.files.tokenizer_folder

    @classmethod
    def open(cls, model: str | os.PathLike[str], options: dict[str, Any], tree: Tree | None = None) -> "PrivateSession":
        """Open a model, in a tree that was started before if there is one; its children load while this process reads
        the tokenizer."""
        session = cls(model, options)
        session.start(tree)
        with session._closed_by_errors():
            session.read_tokenizer()
        session.transport.reached("tokenizer")
        return session

    def read_tokenizer(self) -> None:
        from ..text.tokenizer import Tokenizer  # once the children are starting

        self.tokenizer = Tokenizer(self.files.tokenizer_folder, self.files.folder)
        if self.files.draft_folder is not None:
            check_vocabulary(self.tokenizer, self.files)
        if self.config.enable_mm is not False:
            limits, arguments = self.config.limit_mm_per_prompt, self.config.mm_processor_kwargs
            self.sight = Sight.of(self.files.folder, self.tokenizer, limits, arguments)

    def start(self, tree: Tree | None = None) -> None:
        """Start the children, or launch those of `tree`; called again if the memory that they found was not enough."""
        self.threads = ModelThreads()
        self.templates = TemplateProcesses()
        if self.sight is not None:
            self.sight.open()
        if self.config.data_parallel_size > 1:
            from ..replicas.replicas import Replicas  # few models have several trees

            decode_again = partial(decoded_again, self)
            self.transport = replicas = Replicas(self.config, self.files, self.parsings.shown, decode_again)
            self.adapters = replicas.adapters
        else:
            self.transport = TreeTransport(self.config, self.files, self.parsings.shown, tree)
            self.adapters = Adapters(self.config, self.transport)
        self.transport.on_close = self._close_beside

    def wait_until_ready(self) -> None:
        with self._closed_by_errors():
            self._read_replay()  # while the tree loads
            plan = self.plan = self.transport.wait_until_ready()
            self.door = Door(self.config, self.tokenizer, plan, self.default_params, self.parsings)
            find_facts = partial(facts_of, plan, self.config, *self.model_folders)
            facts = ModelFacts(find_facts, self.adapters.loaded.get)
            self.door.receipts = ReceiptDoor(facts, self.config, plan)
            if self.files.pooled is not None:
                from ..pooling.door import PoolingDoor  # few models need it

                self.door.pooling = PoolingDoor(self.files.pooled, plan)
            self._let_media_in(plan.media)
            self._take_up_replay()
            words = start_words(self.config, plan, logs.columns(), self.files.pooled, is_verbose=logs.is_verbose())
            logs.say(words, quiet=self.is_quiet)
            if (notice := end_tokens.notice(self.tokenizer.end_tokens, plan.vocab_size)) is not None:
                logs.say(notice, quiet=self.is_quiet)

    def _let_media_in(self, encoder: MediaPlan | None) -> None:
        """Let requests have media, if the worker has an encoder, too."""
        if encoder is None and self.config.enable_mm:
            raise ConfigError("enable_mm=True: this model's encoder is not supported yet; leave it out for text alone.")
        if encoder is None and self.sight is not None:
            self.sight.close()
            self.sight = None
        if self.sight is not None:
            self.sight.open(encoder)
            most = self.door.most_characters
            self.door.media = MediaDoor(self.sight, self._render_seen, most, self.door.plan.max_model_len)

    @property
    def stamps(self) -> FileStamps:
        """Of the files that its tree has read, if the daemon has opened it."""
        return self.model_stamps.union(*self.adapters.stamps.values())

    @property
    def media_kinds(self) -> list[str]:
        """The kinds of media that the loaded model accepts: images, videos."""
        return [] if self.sight is None else [kind for kind, most in self.sight.limits.items() if most]

    @contextmanager
    def _closed_by_errors(self) -> Iterator[None]:
        """Close the tree on any error: until it is ready, nobody else does."""
        try:
            yield
        except BaseException:
            self.transport.close()
            raise

    def _close_beside(self) -> None:
        """Close everything that ends with the tree."""
        if self.replay is not None:
            self.replay.close()
        self.threads.close()
        self.close_helpers()

    def close_helpers(self) -> None:
        """End the processes that render templates and decode media."""
        self.templates.close()
        if self.sight is not None:
            self.sight.close()


def _template_text(option: str | None) -> str | None:
    if not option:
        return None
    from ..text.chat import template_text  # imports jinja2

    return template_text(option)
