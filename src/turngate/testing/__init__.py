"""For tests of programs that use Turngate: a model and a model server that say what they are told.

A model without a network::

    provider = ScriptedProvider(["Hel", "lo"], ["Bye", StreamEnd("length")])
    async with open_gateway(path, provider=provider) as gateway: ...

A server that fails as told::

    reply = Reply(body=chat_stream("Hello"), faults=(Cut(at_byte=90),))
    async with ScriptedUpstream(reply) as upstream:
        config = ProviderConfig(base_url=upstream.base_url, model="any")
"""

from turngate.testing.scripted import CUT, Pause, ScriptedProvider, ScriptStep
from turngate.testing.upstream import (
    Connection,
    Cut,
    Drip,
    Fault,
    Flood,
    Mutate,
    Reply,
    ScriptedUpstream,
    ServedRequest,
    SlowHead,
    Stall,
    chat_stream,
)

__all__ = [
    "CUT",
    "Connection",
    "Cut",
    "Drip",
    "Fault",
    "Flood",
    "Mutate",
    "Pause",
    "Reply",
    "ScriptStep",
    "ScriptedProvider",
    "ScriptedUpstream",
    "ServedRequest",
    "SlowHead",
    "Stall",
    "chat_stream",
]
