#!/usr/bin/env python3
"""Adds the counts of equal words, which arrive one behind the other."""
import sys

current = None
total = 0
for line in sys.stdin:
    word, _, count = line.rstrip("\n").partition("\t")
    try:
        count = int(count)
    except ValueError:
        continue
    if word == current:
        total += count
        continue
    if current is not None:
        print(f"{current}\t{total}")
    current, total = word, count
if current is not None:
    print(f"{current}\t{total}")
