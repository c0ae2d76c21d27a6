"""Where the parts meet: the only module that names concrete classes of every seam."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from turngate import identity
from turngate.completion import ChatRequest, ModelPart, StreamEnd
from turngate.context import (
    FactSearch,
    RecentWindow,
    RequestAssembler,
    ThreadMemory,
    TokenEstimator,
)
from turngate.errors import InvalidValue, RequestError
from turngate.files import ObjectFiles
from turngate.gateway import Gateway, GatewayDeps
from turngate.gateway.judging import checks_by_kind
from turngate.gateway.toolbox import tools_by_name
from turngate.protocols import (
    ChatProvider,
    FileStore,
    InputCheck,
    LLMClient,
    OutputCheck,
    Remember,
    ReviewRule,
    ThreadStore,
    Tool,
    WindowStrategy,
)
from turngate.providers import CompatibleModelProvider, ModelRunner, ProviderConfig
from turngate.settings import Settings
from turngate.stores.sqlite import SqliteStore
from turngate.turn_builder import TurnBuilder
from turngate.values import Target

__all__ = ["create_gateway_deps", "open_gateway"]

_WINDOW_TURNS = 40


def create_gateway_deps(
    *,
    store: ThreadStore,
    provider: ChatProvider,
    llm: LLMClient | None = None,
    tools: Sequence[Tool] = (),
    checks: Sequence[InputCheck | OutputCheck] = (),
    reviews: Sequence[ReviewRule] = (),
    instructions: str | None = None,
    model: str | None = None,
    window: WindowStrategy | None = None,
    files: FileStore | None = None,
    remember: Remember | None = None,
    settings: Settings | None = None,
) -> GatewayDeps:
    """The seams of a gateway over `store` and `provider`, each with its default.

    Shapes: `window` None shows the last 40 turns; without `files` none can be put; the
    provider's `target`, where it has one, says what its endpoint demands.
    """
    target = getattr(provider, "target", None)
    target = target if isinstance(target, Target) else Target()
    turn_builder = TurnBuilder()
    counter = TokenEstimator(reasoning=target.replay_reasoning is not None)
    input_checks, output_checks = checks_by_kind(checks, reviews)
    return GatewayDeps(
        store=store,
        llm=llm if llm is not None else ModelRunner(provider),
        memory=ThreadMemory(
            store=store,
            turn_builder=turn_builder,
            strategy=window if window is not None else RecentWindow(turns=_WINDOW_TURNS),
            counter=counter,
            reasoning=target.replay_reasoning is not None,
        ),
        assembler=RequestAssembler(target=target),
        turn_builder=turn_builder,
        counter=counter,
        owner=identity.new_id("boot"),
        instructions=instructions,
        model=model,
        tools=tools_by_name(tools),
        input_checks=input_checks,
        output_checks=output_checks,
        rules=tuple(reviews),
        files=files,
        target=target,
        remember=remember,
        helper=ModelRunner(remember.helper) if remember is not None and remember.helper else None,
        recall=(remember.recall if remember is not None else None)
        or FactSearch(store=store, counter=counter),
        settings=settings if settings is not None else Settings(),
    )


@asynccontextmanager
async def open_gateway(
    path: str | Path,
    *,
    base_url: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
    provider: ChatProvider | None = None,
    tools: Sequence[Tool] = (),
    checks: Sequence[InputCheck | OutputCheck] = (),
    reviews: Sequence[ReviewRule] = (),
    instructions: str | None = None,
    window: WindowStrategy | None = None,
    files: str | Path | FileStore | None = None,
    remember: Remember | None = None,
    resume: bool = True,
    settings: Settings | None = None,
    read_only: bool = False,
) -> AsyncIterator[Gateway]:
    """A gateway over the SQLite file `path` and one model endpoint: ``async with open_gateway(…)``.

    The endpoint is `base_url` (any Chat Completions server, with `api_key` and `model`; None
    takes the server's only model) or `provider`. `tools` is the registry: a call's model sees
    those that its own `tools=` names. `checks` judge every prompt and every model step, in their
    order, and `reviews` are rules for what a person decides on. `remember` has summaries and facts
    written after each answer, and shown to later calls (None: nothing is remembered). Runs that a
    dead process left behind go on here where all their tools, checks and rules are registered, and
    asks end as incomplete/interrupted; with `resume=False` both end so at the next call on their
    thread. With `read_only` there is no endpoint, and the file may be open for writing elsewhere.
    `files` is where the bytes of files live: a folder, the URL of a bucket (``s3://…``), or a
    store of your own; None is the folder ``<path>.files``, made at the first put. A folder or
    bucket prefix belongs to one database.
    Errors: `InvalidValue` for a call that names no endpoint or two; `StoreInUse` where another
    process writes; `StoreError`.
    """
    settings = settings if settings is not None else Settings()
    async with AsyncExitStack() as closing:
        endpoint: ChatProvider
        if read_only:
            endpoint = _NoModel()
        elif provider is not None and base_url is None:
            endpoint = provider
        elif base_url is not None and provider is None:
            config = ProviderConfig(base_url=base_url, api_key=api_key, model=model)
            endpoint = await closing.enter_async_context(CompatibleModelProvider(config))
        else:
            raise InvalidValue("open_gateway takes either base_url or provider")
        store = await SqliteStore.open(path, read_only=read_only, wait_s=settings.store_wait_s)
        closing.push_async_callback(store.aclose)
        deps = create_gateway_deps(
            store=store,
            provider=endpoint,
            tools=tools,
            checks=checks,
            reviews=reviews,
            instructions=instructions,
            model=model,
            window=window,
            files=_file_store(path, files, closing),
            remember=remember,
            settings=settings,
        )
        gateway = Gateway(deps)
        closing.push_async_callback(gateway.aclose)
        if resume and not read_only:
            await gateway.recover()
            await gateway.sweep_reviews()
        yield gateway


def _file_store(
    path: str | Path, files: str | Path | FileStore | None, closing: AsyncExitStack
) -> FileStore:
    """The store that `files` means; one that is made here is closed with `closing`."""
    if files is not None and not isinstance(files, str | Path):
        return files
    database = Path(path).resolve()  # beside the file itself, by whatever link it was opened
    store = ObjectFiles(
        files if files is not None else database.with_name(f"{database.name}.files")
    )
    closing.push_async_callback(store.aclose)
    return store


class _NoModel:
    """The endpoint of a gateway that only reads."""

    def stream(self, request: ChatRequest) -> AsyncIterator[ModelPart | StreamEnd]:
        raise RequestError("this gateway was opened to read; it has no model")
