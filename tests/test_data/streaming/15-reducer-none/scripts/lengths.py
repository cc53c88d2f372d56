#!/usr/bin/env python3
import sys

for line in sys.stdin:
    line = line.rstrip("\n")
    print(len(line.split()), line, sep="\t")
