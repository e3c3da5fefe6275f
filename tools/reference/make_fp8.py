"""Writes tests/data/fp8.txt: fp32 numbers and what PyTorch rounds them to in E4M3 and E5M2.

    python3 tools/reference/make_fp8.py > tests/data/fp8.txt

A line has the bits of an fp32 and of its two roundings, as fp32 again. There are all numbers of
both formats, the middles between neighbours and what stands right beside these, and some drawn.
What a format has no number for (PyTorch makes a NaN or an infinity of it, others its largest
number) is '-'.
"""
import random
import struct

import torch

FORMATS = {torch.float8_e4m3fn: 464.0, torch.float8_e5m2: 61440.0}  # from here on beyond the largest


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def number(of):
    return struct.unpack("<f", struct.pack("<I", of))[0]


def numbers(dtype):
    codes = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    return sorted({float(x) for x in codes if torch.isfinite(x) and x >= 0})


def main():
    inputs = {0x80000000, 0x7FC00000, 1, 0x80000001}
    for dtype in FORMATS:
        of_format = numbers(dtype)
        for low, high in zip(of_format, of_format[1:]):
            middle = bits((low + high) / 2)
            inputs |= {bits(low), bits(high), middle - 1, middle, middle + 1}
    draw = random.Random(8)
    inputs |= {bits(draw.choice((-1, 1)) * 2 ** draw.uniform(-20, 15)) for _ in range(300)}
    inputs |= {x | 0x80000000 for x in list(inputs)[::5]}
    print("# PyTorch %s: fp32, E4M3, E5M2" % torch.__version__)
    for x in sorted(inputs):
        value = torch.tensor(number(x))
        words = ["%08x" % x]
        for dtype, beyond in FORMATS.items():
            there = not abs(value.item()) >= beyond
            words.append("%08x" % bits(value.to(dtype).float().item()) if there else "-")
        print(*words)


if __name__ == "__main__":
    main()
