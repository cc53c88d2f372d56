#!/usr/bin/env python3
import sys

for line in sys.stdin:
    name = line.rstrip("\n").split("\t")[0]
    print(f"LongValueSum:{name}\t1")
