#!/usr/bin/env python3
import itertools
import sys

rows = (line.rstrip("\n").split("\t") for line in sys.stdin)
for year, group in itertools.groupby(rows, key=lambda row: row[0]):
    print(year, max(int(row[1]) for row in group), sep="\t")
