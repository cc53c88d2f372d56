#!/usr/bin/env python3
"""Keeps rows name,number; tells what it leaves out by counters."""
import sys

print("reporter:status:checking rows", file=sys.stderr)
for line in sys.stdin:
    fields = line.rstrip("\n").split(",")
    if len(fields) != 2:
        print("reporter:counter:Bad rows,wrong number of fields,1", file=sys.stderr)
    elif not fields[1].isdigit():
        print("reporter:counter:Bad rows,not a number,1", file=sys.stderr)
    else:
        print("reporter:counter:Good rows,sum of numbers," + fields[1], file=sys.stderr)
        print(fields[0])
print("done with a part of the input", file=sys.stderr)
