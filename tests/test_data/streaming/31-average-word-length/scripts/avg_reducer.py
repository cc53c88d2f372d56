#!/usr/bin/env python3
import itertools
import sys

rows = (line.split("\t") for line in sys.stdin)
for letter, group in itertools.groupby(rows, key=lambda row: row[0]):
    lengths = [int(length) for _, length in group]
    print(f"{letter}\t{sum(lengths) / len(lengths):.4f}")
