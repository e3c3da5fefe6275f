#!/usr/bin/env python3
"""The characters of each class that tokenizers ask about, as Hugging Face tokenizers and tiktoken have them.

    python3 tools/reference/make_unicode_tables.py src/tokenizer/unicode_tables.c tests/data/unicode.json

Asks tokenizers 0.23.3 and tiktoken 0.14.0 about every code point but the surrogates: the table is what the first says,
the tests' file what both say of patterns, steps and normal forms. Another version is another table: ids change.
"""
import json
import sys
import zlib

import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
SCRIPTS = ["Han", "Hiragana", "Katakana", "Hangul"]
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ALL = "".join(map(chr, POINTS))
ISOLATED = "".join("z" + chr(c) for c in POINTS) + "z"

DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
ENDINGS = r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def cased(but):
    """The words of o200k, of Kimi's without Han characters: capitals first, then small letters."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}%s]" % but, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}%s]" % but
    before = r"[^\r\n\p{L}\p{N}]?"
    return "%s%s*%s+%s?|%s%s+%s*%s?|" % (before, upper, lower, CONTRACTION, before, upper, lower, CONTRACTION)


MODELS = {"deepseek": DEEPSEEK, "o200k": [cased("") + ENDINGS], "kimi": [r"[\p{Han}]+|" + cased(r"&&[^\p{Han}]") + ENDINGS],
          "llama3": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + ENDINGS]}

# U+1FA77 is new in Unicode 15, U+A7CB and U+1C89 in 16, U+16FF4 in 17.
PIECES = ["a \U0001fa77 b", "x\U0001fa77y\U0001fa77\U0001fa77 !!", "\U0001fa77\U0001fa77abc 12345 \U0001fa77.\n",
          "\ua7cb\u1c89b.\u1c89 \U00016ff4\U00016ff41", "日本語\U000323b0\U0001fa77は \u09fd\u2e5d c",
          "HELLOWorld'LL it\u017f I'\u017f don'T\u1c89\u1c8a \ua7dc\u019b", "Ünïcödé 汉字Mixed漢字\u3007々 ǅak ʰa \u0345Ⅷ٣½",
          "\U0001e6d0\U0001e6e3x \U00010d50\U00010d70 \U000113d2\u200d\n\n  \u3000 9999\U00010d40\U00010d41"]


def by_onig(pattern):
    """The characters that a pattern matches, by Oniguruma."""
    step = pre_tokenizers.Split(Regex("(?:" + pattern + ")+"), "removed", invert=True)
    return {ord(c) for piece, _ in step.pre_tokenize_str(ALL) for c in piece}


def by_rust(pattern):
    """The same by fancy-regex, under tiktoken."""
    encoding = tiktoken.Encoding("bytes", pat_str="(?:" + pattern + ")+", special_tokens={},
                                 mergeable_ranks={bytes([b]): b for b in range(256)})
    return set(map(ord, bytes(encoding.encode_ordinary(ALL)).decode()))


def isolated(step):
    """The characters that a step cuts off from a letter on either side."""
    return {ord(ISOLATED[begin]) for _, (begin, end) in step.pre_tokenize_str(ISOLATED)
            if end - begin == 1 and begin % 2 == 1}


def removed(step):
    kept = {ord(c) for piece, _ in step.pre_tokenize_str(ISOLATED) for c in piece}
    return set(POINTS) - kept


def words():
    """The characters beside which a single_word token is none."""
    tokenizer = Tokenizer(models.BPE({"tool": 0}, []))
    tokenizer.add_tokens([AddedToken("tool", single_word=True)])
    found = {begin for begin, _ in tokenizer.encode("".join("tool%c " % c for c in POINTS)).offsets}
    return {c for i, c in enumerate(POINTS) if 6 * i not in found}


def bert(**only):
    steps = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False, **only}
    return normalizers.BertNormalizer(**steps).normalize_str


def bert_sets():
    """The characters that BertNormalizer leaves out as accents, leaves out as no text, puts between blanks."""
    accents, clean, han = bert(strip_accents=True), bert(clean_text=True), bert(handle_chinese_chars=True)
    return {"accents": ("BertNormalizer's accents", {c for c in POINTS if accents("a%cb" % c) == "ab"}),
            "cleaned": ("BertNormalizer's clean_text", {c for c in POINTS if clean("a%cb" % c) == "ab"}),
            "han_blocks": ("BertNormalizer's Chinese", {c for c in POINTS if han(chr(c)) != chr(c)})}


def normalized():
    """The characters on which normal forms act: all others stand for themselves, and apart."""
    nfd, nfc = normalizers.NFD().normalize_str, normalizers.NFC().normalize_str
    nfkd = normalizers.NFKD().normalize_str
    found = set()
    for c in POINTS:
        whole, parts = chr(c), nfd(chr(c))
        if nfkd(whole) != whole or nfd("a\u0345" + whole) != "a\u0345" + whole:  # U+0345 goes behind all marks
            found.add(c)
        if len(parts) > 1:
            found.update(map(ord, parts + nfc(parts[:-1])[-1]))
    return found


def form_text():
    marks = "\u0301\u0323\u0338\u0345\u3099\u0334\u05bc"
    points = [c for c in POINTS if c < 0x32000 or 0xE0000 <= c < 0xE0200]
    return "".join(chr(c) + marks[c % 7] + "a" + chr(c) + "\u0334" for c in points)


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def lines(items):
    out = [" "]
    for item in items:
        if len(out[-1]) + len(item) + 2 > 100:
            out.append(" ")
        out[-1] += (" " if out[-1].strip() else " ") + item + ","
    return "\n".join(out)


def set_text(name, points):
    items = ["{0x%x,0x%x}" % tuple(r) for r in ranges(points)]
    return "static const ls_point_range %s[] = {\n%s\n};\n" % (name, lines(items))


def version(points):
    """Of the first that is missing, in the order of the versions of Unicode that brought them."""
    first = [("9.0", 0x1E95E), ("10.0", 0x2E45), ("11.0", 0x2E4A), ("12.0", 0x2E4F), ("13.0", 0x2E52),
             ("14.0", 0x2E53), ("15.0", 0x1FA77), ("16.0", 0x1C89), ("17.0", 0x16FF4)]
    known = "8.0"
    for name, point in first:
        if point in points:
            known = name
    return known


HEAD = """\
/* Made by tools/reference/make_unicode_tables.py from tokenizers {library}: not to be edited.
 * Categories and scripts are of Unicode {patterns}, as its patterns read them; the numbers of its
 * Digits of {numbers}, the marks of its Punctuation of {marks}; its normal forms of 9.0. */
#include "tokenizer/unicode_tables.h"

/* clang-format off */
#define SET(name, ranges) {{name, ranges, (int)(sizeof ranges / sizeof *ranges)}}

const char ls_unicode_version[] = "{patterns}";
const char ls_category_names[] = "{names}";

/* The first character of each run of one category, times 256, and the category's number. */
const uint32_t ls_category_runs[] = {{
{runs}
}};
const int ls_category_run_count = (int)(sizeof ls_category_runs / sizeof *ls_category_runs);

"""


def write_table(path):
    category = ["Cs"] * 0x110000
    for name in CATEGORIES:
        for c in by_onig(r"\p{%s}" % name):
            assert category[c] == "Cs"
            category[c] = name
    runs = ["0x%x" % (c << 8 | CATEGORIES.index(category[c])) for c in range(0x110000)
            if c == 0 or category[c] != category[c - 1]]
    assigned = {c for c in POINTS if category[c] != "Cn"}
    digits = isolated(pre_tokenizers.Digits(True))
    marks = isolated(pre_tokenizers.Punctuation("isolated"))
    in_sets = {"spaces": ("White_Space", by_onig(r"\s")),
               "word_symbols": ("Alphabetic symbols", {c for c in by_onig(r"[\w]") if category[c][0] == "S"}),
               "numbers": ("Digits", digits), "marks": ("Punctuation", marks), "forms": ("normal forms", normalized()),
               **bert_sets()}
    letters = {c for c in POINTS if category[c][0] in "LM" or category[c] in ("Nd", "Nl", "Pc")}
    assert by_onig(r"[\w]") == letters | in_sets["word_symbols"][1]
    out = HEAD.format(library=tokenizers.__version__, patterns=version(assigned), numbers=version(assigned | digits),
                      marks=version(marks), names="".join(CATEGORIES), runs=lines(runs))
    for script in SCRIPTS:
        out += set_text(script.lower(), by_onig(r"\p{%s}" % script))
    out += "\nconst ls_named_points ls_scripts[] = {\n%s\n  {0}};\n\n" % lines(
        'SET("%s", %s)' % (script, script.lower()) for script in SCRIPTS)
    for name, (title, points) in in_sets.items():
        out += set_text(name, points)
        out += 'const ls_named_points ls_points_%s = SET("%s", %s);\n\n' % (name, title, name)
    with open(path, "w", encoding="ascii") as file:
        file.write(out + "/* clang-format on */\n")


def digest(points):
    bits = bytearray(0x110000 // 8)
    for c in points:
        bits[c // 8] |= 1 << c % 8
    return [len(points), zlib.crc32(bits)]


def listing(value, depth):
    """JSON with an entry a line as far as the given depth."""
    inner = list(value.values()) if isinstance(value, dict) else value
    if depth == 0 or not isinstance(inner, list) or not any(isinstance(each, (dict, list)) for each in inner):
        return json.dumps(value)
    entries = [listing(each, depth - 1) for each in inner]
    if isinstance(value, dict):
        return "{\n" + ",\n".join("%s: %s" % (json.dumps(k), e) for k, e in zip(value, entries)) + "\n}"
    return "[" + ",\n".join(entries) + "]"


def pieces(patterns):
    """What a model's patterns make of the texts."""
    splits = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated", False) for p in patterns])
    return {"pre_tokenizer": json.loads(splits.__getstate__()), "texts": PIECES,
            "pieces": [[piece for piece, _ in splits.pre_tokenize_str(text)] for text in PIECES]}


def write_reference(path):
    properties = ["L", "M", "N", "P", "S", "Z", "C"] + [c for c in CATEGORIES if c != "Cs"] + SCRIPTS
    patterns = [r"\s", r"\S", r"[\s]", r"[^\s]", r"\w", r"\W", r"[\w]", r"[^\w]", r"[\W]", r"\d", r"\D", r"[\D]",
                r"\P{L}", r"[\P{L}]", r"[^\p{L}]", r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{P}\p{S}]", r"[^a[^b一-龥]]",
                r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[^\p{L}\p{M}&&[^\p{Ll}&&\p{L}]]", r"[\p{L}&&[a-z]]",
                "[一-龥\u3040-ゟ゠-ヿ]", "é", ".", r"(?i:[sk])", r"(?i:s|k)", r"(?i:[^skr-z])", r"(?i:\d)"]
    patterns += [r"\p{%s}" % p for p in properties] + [r"[\p{%s}]" % p for p in ("L", "Lu", "M", "Han")]
    forms = [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD()]
    reference = {
        "by": "tokenizers %s, tiktoken %s" % (tokenizers.__version__, tiktoken.__version__),
        "ruby": {p: digest(by_onig(p)) for p in patterns + [r"\p{^L}", r"(?i:\p{Lu})"]},
        "rust": {p: digest(by_rust(p)) for p in patterns + [r"\pL", r"[\pN]"]},
        "Digits": digest(isolated(pre_tokenizers.Digits(True))),
        "Punctuation": digest(isolated(pre_tokenizers.Punctuation("isolated"))),
        "WhitespaceSplit": digest(removed(pre_tokenizers.WhitespaceSplit())),
        "single_word": digest(words()),
        "forms": [zlib.crc32(form.normalize_str(form_text()).encode()) for form in forms],
        "bert": [zlib.crc32(bert(**{step: True})(ALL).encode())
                 for step in ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")],
        "models": {name: pieces(patterns) for name, patterns in MODELS.items()},
        "Whitespace": [[p for p, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text)]
                       for text in ["a\u200db c\u00b2\u0301 \u24b6.\u1c89"]],
    }
    with open(path, "w", encoding="ascii") as file:
        file.write(listing(reference, 3) + "\n")


if __name__ == "__main__":
    write_table(sys.argv[1])
    write_reference(sys.argv[2])
