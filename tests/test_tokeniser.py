"""Tokens of texts beside those of the packages tokenizers and sentencepiece, with small vocabularies trained here."""

import json

import pytest
from conftest import ROOT

from gipo.tokeniser import BYTES, MARK, Tokeniser, openvla_prompt

TEXTS = [
    "open the door", "Pick up the black bowl between the plate and the ramekin and place it on the plate", "  two  spaces ",
    "In: What action should the robot take to press the button?\nOut:", "naïve café, 中文, 🤖", "a\tb\nc", "x", "", "</s> <s>",
]  # fmt: skip


@pytest.fixture(scope="module")
def corpus():
    return [line for page in sorted((ROOT / "docs").glob("*.md")) for line in page.read_text().splitlines() if line.isascii()]


@pytest.fixture(scope="module")
def json_file(tmp_path_factory, corpus):
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import models, normalizers, trainers

    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=1200, special_tokens=special))
    path = tmp_path_factory.mktemp("json") / "tokenizer.json"
    made.save(str(path))
    plain = json.loads(path.read_text())
    # In Llama's file bytes are no special tokens.
    plain["added_tokens"] = plain["added_tokens"][:3]
    path.write_text(json.dumps(plain))
    return path


@pytest.fixture(scope="module")
def model_file(tmp_path_factory, corpus):
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("model")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_prefix=str(folder / "tokenizer"), vocab_size=1200, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
    )  # fmt: skip
    return folder / "tokenizer.model"


@pytest.mark.parametrize("text", [text for text in TEXTS if "<s>" not in text])  # here a text holds no tokens of its own
def test_tokenizer_json_is_read_as_the_package_tokenizers_does(json_file, text):
    theirs = pytest.importorskip("tokenizers").Tokenizer.from_file(str(json_file))
    assert Tokeniser(json_file).encode(text) == [1, *theirs.encode(text, add_special_tokens=False).ids]


@pytest.mark.parametrize("text", TEXTS)
def test_tokenizer_model_is_read_as_the_package_sentencepiece_does(model_file, text):
    theirs = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_file=str(model_file))
    assert Tokeniser(model_file).encode(text) == [1, *theirs.encode(text)]


def test_a_prompt_is_openvlas_with_the_lone_mark_behind(model_file):
    tokeniser = Tokeniser(model_file)
    tokens = tokeniser.prompt("Open the door")
    assert tokens[:-1] == tokeniser.encode("In: What action should the robot take to open the door?\nOut:")
    assert tokens[-1] == tokeniser.ids[MARK]
    assert openvla_prompt("Open") == "In: What action should the robot take to open?\nOut:"


def test_bytes_need_no_file():
    assert Tokeniser(BYTES).prompt("öp") == [1, 3 + 0xC3, 3 + 0xB6, 3 + ord("p")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "byte-pair"), (b"{", "Expecting"), (b"{}", "it has no 'model'"),
        (b'{"model": {"type": "WordPiece"}}', "its model is WordPiece"),
        (b'{"model": {"type": "BPE", "byte_fallback": true, "vocab": {}, "merges": []}}', "spaces"),
        (b"\x0a\xff\x01", "it is cut"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_named(tmp_path, content, said):
    (tmp_path / "tokenizer").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        Tokeniser(tmp_path / "tokenizer", "env.options.tokeniser")


def test_a_cut_file_and_one_of_another_kind_are_named(tmp_path, model_file, corpus):
    (tmp_path / "cut.model").write_bytes(model_file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"env.options.tokeniser is '.*cut.model'"):
        Tokeniser(tmp_path / "cut.model", "env.options.tokeniser")
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_prefix=str(tmp_path / "unigram"), vocab_size=1200, byte_fallback=True, minloglevel=2
    )
    with pytest.raises(ValueError, match="byte-pair"):
        Tokeniser(tmp_path / "unigram.model")
