"""Tokens of a text, as the language model of a vision-language-action model reads it. The gipo program gives this text to its
workers together with robot_tasks.py, so it imports nothing of gipo.

    Tokeniser("tokenizer.json").prompt("open the door")       # or tokenizer.model
    Tokeniser("bytes").prompt("open the door")                # needs no file
"""

import json
import pathlib
import struct
from collections.abc import Iterator

MARK = "\u2581"  # what a space is in pieces of SentencePiece
BYTES = "bytes"
FIRST_TOKEN, FIRST_BYTE = 1, 3  # without a file: of a text; of the 256 tokens of bytes


def openvla_prompt(instruction: str) -> str:
    """The text that OpenVLA is asked with; its tokeniser's tokens of it are a prompt, the token that begins a text first."""
    return f"In: What action should the robot take to {instruction.lower()}?\nOut:"


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message of protobuf: number and value, which is a whole number, four bytes of a float, or bytes."""
    at, end = 0, len(message)

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < end:
        key = number()
        kind, length = key & 7, 0
        if kind == 0:
            yield key >> 3, number()
            continue
        length = {1: 8, 5: 4}.get(kind) or (number() if kind == 2 else -1)
        if length < 0 or at + length > end:
            raise ValueError("it is cut, or no message of protobuf")
        yield key >> 3, message[at : at + length]
        at += length


class Tokeniser:
    """Llama's byte-pair encoding: a space becomes a mark, one stands before the text, neighbouring pieces are merged in the
    order of the file, and what is in no piece becomes bytes. `where` names it in messages. Words such as "</s>" inside a text
    are not taken for tokens of their own."""

    def __init__(self, path: str | pathlib.Path, where: str = "tokeniser") -> None:
        self.path = str(path)
        self.ids: dict[str, int] = {}
        self.rank: dict[tuple[str, str], int] = {}
        self.score: dict[str, float] | None = None
        if self.path == BYTES:
            return
        try:
            data = pathlib.Path(path).expanduser().read_bytes()
            (self._read_json if data.lstrip()[:1] == b"{" else self._read_model)(data)
            self.begin, self.last = self.ids["<s>"], self.ids.get(MARK)
            missing = [f"<0x{byte:02X}>" for byte in range(256) if f"<0x{byte:02X}>" not in self.ids]
            if missing:
                raise ValueError(f"it has no token {missing[0]}, and Llama's has one for each byte")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{where} is {self.path!r}: wanted \"bytes\", or the file tokenizer.json or tokenizer.model of a "
                             f"language model such as Llama 2; {why}") from None

    def _read_json(self, data: bytes) -> None:
        """As the package tokenizers writes it."""
        file = json.loads(data)
        model = file["model"]
        if model["type"] != "BPE" or not model.get("byte_fallback"):
            raise ValueError(f"its model is {model['type']}: wanted BPE with byte_fallback")
        self.ids = dict(model["vocab"]) | {token["content"]: token["id"] for token in file.get("added_tokens", [])}
        pairs = (tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge) for merge in model["merges"])
        self.rank = {pair: k for k, pair in enumerate(pairs)}
        if MARK not in json.dumps([file.get("normalizer"), file.get("pre_tokenizer")], ensure_ascii=False):
            raise ValueError(f"it does not turn spaces into {MARK}")

    def _read_model(self, data: bytes) -> None:
        """As the package sentencepiece writes it: pieces with their scores; a pair is merged if its piece is one."""
        self.score, kind, other = {}, None, False
        for number, value in fields_of(data):
            if number == 1:
                piece = dict(fields_of(value))
                text = piece[1].decode()
                self.score[text] = struct.unpack("<f", piece.get(2, b"\0\0\0\0"))[0]
                if piece.get(3, 1) != 1:  # not an ordinary one: unknown, control, byte
                    del self.score[text]
                self.ids[text] = len(self.ids)
            elif number == 2:
                kind = dict(fields_of(value)).get(3, 1)
            elif number == 3:
                other = bool(dict(fields_of(value)).get(2))
        if kind != 2:
            raise ValueError("its pieces are not those of byte-pair encoding (model_type bpe)")
        if other:
            raise ValueError("it changes texts before it cuts them: wanted the normalisation identity")

    def _worth(self, left: str, right: str) -> float | None:
        """The least is merged first; None: not at all."""
        if self.score is None:
            return self.rank.get((left, right))
        score = self.score.get(left + right)
        return None if score is None else -score

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, the one that begins a text first."""
        if self.path == BYTES:
            return [FIRST_TOKEN, *(FIRST_BYTE + byte for byte in text.encode())]
        pieces = list(MARK + text.replace(" ", MARK)) if text else []
        while True:
            worth = [self._worth(*pair) for pair in zip(pieces, pieces[1:])]  # noqa: B905 - one shorter
            known = [(w, k) for k, w in enumerate(worth) if w is not None]
            if not known:
                break
            _, at = min(known)
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        tokens = [self.begin]
        for piece in pieces:
            if piece in self.ids:
                tokens.append(self.ids[piece])
            else:
                tokens += [self.ids[f"<0x{byte:02X}>"] for byte in piece.encode()]
        return tokens

    def prompt(self, instruction: str) -> list[int]:
        """The tokens that a model of this tokeniser is asked with: of OpenVLA's prompt, with the lone mark behind them that it
        was trained with; of the instruction alone, where tokens are bytes."""
        if self.path == BYTES:
            return self.encode(instruction)
        tokens = self.encode(openvla_prompt(instruction))
        return tokens if self.last in (None, tokens[-1]) else [*tokens, self.last]
