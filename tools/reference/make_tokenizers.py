#!/usr/bin/env python3
"""Small tokenizers of every supported kind, and what their own libraries make of nasty strings.

    python3 tools/reference/make_tokenizers.py tests/data/tokenizers

Writes NAME/tokenizer.json, tokenizer.model or ranks.tiktoken, and NAME/vectors.json with the ids and
decoded texts of Hugging Face tokenizers 0.23.3, sentencepiece 0.2.3 and tiktoken 0.14.0. The
tokenizers are trained on this repository's own documents.
"""
import base64
import json
import os
import random
import sys

import sentencepiece
import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
          r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"

STRINGS = [
    "", " ", "  ", "\n", "\n\n", "\t\n ", "a", " a", "a ", "Hello world", " Hello  world ", "don't DON'T I'll we'Ve",
    "one\ntwo\r\nthree\n\n\nfour", "   leading and trailing   ", "tabs\tand\u00a0no-break\u2003spaces\u3000here",
    "1234567890 12 3.14 1,000,000 ²³½ Ⅷ ٣٤", "naïve café — “quotes” … ﬁne ＡＢＣ", "cafe\u0301 e\u0301\u0323 \u1e69 s\u0323\u0307",
    "\u0344 \u2126 \u212b \uf900 \u0958", "한국어 \u1112\u1161\u11ab \u1112\u1161", "日本語のテキスト。\nか\u3099き\u3099", "кириллица Ελληνικά عربي עברית हिन्दी",
    "🦙🚀👨‍👩‍👧‍👦🏳️‍🌈 😶‍🌫️", "a\u0000b\u0001\u007f\u0085c", "\u180e\u200b\ufeff\ufffd\ufffe", "x" * 60, "ab" * 40, "=" * 33 + " " * 17 + "end",
    "<|end|>", "text<|end|>more", " <|end|> ", "a <mask>  b", "a<mask>b", "  <mask>\n c", "word tool wordtool tool", "the end.<|end|>\n<|end|>",
    "ﬀoo Bar_baz foo.bar(qux)[0] += x*2;", "snake_case CamelCase mixed123abc 4u", "▁under▁score ▁ ▁▁", "<0x41><0x0A> <s> </s> <unk>",
    "İstanbul ſtraße ẞ ŉ", "(\u0660) [।] 、。，!?…", "\u24b6\u24d0 \U0001f130 ‿ _", "emoji1️⃣ 2⃣", "\U00010400\U0001d400 \U000e0041",
]


def words(count, seed):
    source = random.Random(seed)
    alphabet = "etaoinshrdlu ETA  .,\n0123'éß日本🦙\u0301\t_-"
    return ["".join(source.choice(alphabet) for _ in range(source.randint(1, 60))) for _ in range(count)]


def corpus():
    texts = []
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        with open(name, encoding="utf-8") as file:
            texts += file.read().split("\n")
    return texts + [s for s in STRINGS for _ in range(3)]


def trained(pre, normalizer=None, vocabulary=420, alphabet=True, unknown=None, **options):
    tokenizer = Tokenizer(models.BPE(unk_token=unknown, **options))
    tokenizer.pre_tokenizer = pre
    if normalizer:
        tokenizer.normalizer = normalizer
    start = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    special = [unknown] if unknown else []
    if options.get("byte_fallback"):
        special += ["<0x%02X>" % byte for byte in range(256)]
    limit = {} if alphabet else {"limit_alphabet": 70}
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=sorted(start), show_progress=False,
                                  special_tokens=special, **limit)
    tokenizer.train_from_iterator(corpus(), trainer)
    if special:  # the trainer made them added tokens, which they are not
        form = json.loads(tokenizer.to_str())
        form["added_tokens"] = [t for t in form["added_tokens"] if t["content"] == unknown]
        tokenizer = Tokenizer.from_str(json.dumps(form))
    return tokenizer


def add(tokenizer, normalized=False):
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=normalized),
                          AddedToken("tool", single_word=True, normalized=normalized),
                          AddedToken("    ", normalized=True)])
    return tokenizer


def template(tokenizer, text):
    tokens = [(t, tokenizer.token_to_id(t)) for t in ("<|end|>",)]
    tokenizer.post_processor = processors.TemplateProcessing(single=text, special_tokens=tokens)
    return tokenizer


def byte_level(prefix=False, regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


def huggingface():
    made = {}
    t = add(trained(sequence(split(QWEN), byte_level(regex=False)), normalizers.NFC()))
    t.decoder = decoders.ByteLevel()
    made["bytes-nfc-split"] = template(t, "<|end|> $A")

    t = add(trained(byte_level(prefix=True)), normalized=True)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False)])
    made["bytes-prefix-space"] = t

    t = trained(sequence(pre_tokenizers.Punctuation("contiguous"), byte_level(), pre_tokenizers.Digits(False),
                         split("[0-9][0-9][0-9]")), vocabulary=330)
    t.decoder = decoders.ByteLevel()
    made["bytes-falcon"] = add(t)

    t = trained(sequence(pre_tokenizers.Digits(True), byte_level()), vocabulary=330)
    t.decoder = decoders.ByteLevel()
    form = json.loads(t.to_str())
    form["model"]["ignore_merges"] = True
    form["model"]["merges"] = form["model"]["merges"][::2]
    names = [tokenizer_merge(m) for m in form["model"]["merges"]]
    keep = set(form["model"]["vocab"])
    form["model"]["merges"] = [m for m, n in zip(form["model"]["merges"], names) if n in keep]
    made["bytes-digits-ignore-merges"] = Tokenizer.from_str(json.dumps(form))

    t = trained(sequence(split(BLOOM), byte_level(regex=False)), vocabulary=330)
    t.decoder = decoders.ByteLevel()
    made["bytes-bloom"] = template(add(t), "$A <|end|>")

    prepend = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    llama = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    t = trained(metaspace, vocabulary=520, alphabet=False, unknown="<unk>", byte_fallback=True, fuse_unk=True)
    t = add(t)
    t.pre_tokenizer = None
    form = json.loads(t.to_str())
    form["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(form))
    t.normalizer = prepend
    t.decoder = decoders.Sequence(llama)
    made["characters-byte-fallback"] = template(t, "<|end|> $A")

    for scheme in ("first", "always", "never"):
        pre = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=scheme != "first")
        t = trained(metaspace, vocabulary=200, alphabet=False, unknown="<unk>", fuse_unk=scheme == "first")
        t.pre_tokenizer = pre
        t.decoder = decoders.Metaspace(prepend_scheme=scheme)
        made["metaspace-" + scheme] = add(t)

    steps = [normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    t = trained(pre_tokenizers.Whitespace(), normalizers.Sequence(steps), vocabulary=160, alphabet=False,
                unknown="<unk>")
    made["whitespace-nfkc"] = t

    for behavior in ("removed", "merged_with_previous", "merged_with_next", "contiguous"):
        pre = sequence(pre_tokenizers.Split(" ", behavior, False), split(r"\w", behavior, behavior == "contiguous"))
        t = trained(pre, normalizers.NFD() if behavior == "removed" else normalizers.NFKD(), vocabulary=160,
                    alphabet=False)
        t.decoder = decoders.Fuse()
        made["split-" + behavior.replace("_", "-")] = t

    t = trained(sequence(pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated")),
                vocabulary=160, alphabet=False, unknown="<unk>")
    made["whitespace-split"] = t
    for name, cased in (("word-piece", False), ("word-piece-cased", True)):
        made[name] = word_piece(cased)
    return made


def word_piece(cased):
    """BERT's, and one that keeps capitals, knows few characters and decodes without cleanup."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20 if cased else 100))
    t.normalizer = normalizers.BertNormalizer(clean_text=not cased, handle_chinese_chars=True, lowercase=not cased)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=260 if cased else 520, special_tokens=special, show_progress=False,
                                        limit_alphabet=60 if cased else 200)
    t.train_from_iterator(corpus(), trainer)
    t.decoder = decoders.WordPiece(prefix="##", cleanup=not cased)
    pair = [(s, t.token_to_id(s)) for s in ("[SEP]", "[CLS]")]
    t.post_processor = processors.BertProcessing(*pair) if cased else processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=pair)
    return t


def tokenizer_merge(merge):
    return merge.replace(" ", "") if isinstance(merge, str) else "".join(merge)


def save_huggingface(folder, tokenizer):
    form = json.loads(tokenizer.to_str())
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(form, file, ensure_ascii=False, indent=0, separators=(",", ":"))
        file.write("\n")
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    vectors = []
    for text in STRINGS + words(16, 1):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        special = tokenizer.encode(text).ids
        vectors.append({"text": text, "ids": ids, "ids_with_special": special,
                        "decoded": tokenizer.decode(special, skip_special_tokens=True),
                        "decoded_with_special": tokenizer.decode(special, skip_special_tokens=False)})
    return {"by": "tokenizers " + tokenizers.__version__, "vectors": vectors}


def save_sentencepiece(folder, **options):
    source = os.path.join(folder, "corpus.txt")
    with open(source, "w", encoding="utf-8") as file:
        file.write("\n".join(line for line in corpus() if line.strip() and "\0" not in line))
    sentencepiece.SentencePieceTrainer.train(input=source, model_prefix=os.path.join(folder, "tokenizer"),
                                             minloglevel=2, num_threads=1, **options)
    os.remove(source)
    os.remove(os.path.join(folder, "tokenizer.vocab"))
    model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    vectors = []
    for text in STRINGS + words(16, 2):
        ids = model.encode(text)
        vectors.append({"text": text, "ids": ids, "decoded": model.decode(ids)})
    return {"by": "sentencepiece " + sentencepiece.__version__, "vectors": vectors}


def save_tiktoken(folder, tokenizer):
    to_byte = {c: b for b, c in bytes_to_unicode().items()}
    ranks = {}
    for piece, rank in sorted(tokenizer.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1]):
        ranks[bytes(to_byte[c] for c in piece)] = len(ranks)
    with open(os.path.join(folder, "ranks.tiktoken"), "w", encoding="ascii") as file:
        for piece, rank in ranks.items():
            file.write("%s %d\n" % (base64.b64encode(piece).decode(), rank))
    encoding = tiktoken.Encoding("small", pat_str=CL100K, mergeable_ranks=ranks, special_tokens={})
    vectors = []
    for text in STRINGS + words(16, 3):
        ids = encoding.encode_ordinary(text)
        vectors.append({"text": text, "ids": ids, "decoded": encoding.decode(ids)})
    return {"by": "tiktoken " + tiktoken.__version__, "pattern": CL100K, "vectors": vectors}


def bytes_to_unicode():
    printing = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [b for b in range(256) if b not in printing]
    return {**{b: chr(b) for b in printing}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def main(target):
    made = huggingface()
    jobs = {name: (lambda folder, t=t: save_huggingface(folder, t)) for name, t in made.items()}
    jobs["sentencepiece-bpe"] = lambda folder: save_sentencepiece(
        folder, model_type="bpe", vocab_size=520, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, user_defined_symbols=["<mask>", "▁ ▁"], character_coverage=0.98)
    jobs["sentencepiece-bpe-unknown"] = lambda folder: save_sentencepiece(
        folder, model_type="bpe", vocab_size=300, normalization_rule_name="identity", character_coverage=0.98)
    jobs["sentencepiece-unigram"] = lambda folder: save_sentencepiece(
        folder, model_type="unigram", vocab_size=420, byte_fallback=True, normalization_rule_name="identity",
        user_defined_symbols=["<mask>"], character_coverage=0.98)
    jobs["tiktoken"] = lambda folder: save_tiktoken(folder, made["bytes-nfc-split"])
    for name, job in jobs.items():
        folder = os.path.join(target, name)
        os.makedirs(folder, exist_ok=True)
        vectors = job(folder)
        with open(os.path.join(folder, "vectors.json"), "w", encoding="utf-8") as file:
            json.dump(vectors, file, ensure_ascii=True, separators=(",", ":"))
            file.write("\n")
        print(name, len(vectors["vectors"]))


if __name__ == "__main__":
    main(sys.argv[1])
