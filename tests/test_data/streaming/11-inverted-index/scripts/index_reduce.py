#!/usr/bin/env python3
"""word TAB document:occurrences,... with the documents in order of name."""
import collections
import sys


def write(word, counts):
    print(word + "\t" + ",".join(f"{name}:{counts[name]}" for name in sorted(counts)))


current, counts = None, collections.Counter()
for line in sys.stdin:
    word, document = line.rstrip("\n").split("\t")
    if current is not None and word != current:
        write(current, counts)
        counts.clear()
    current = word
    counts[document] += 1
if current is not None:
    write(current, counts)
