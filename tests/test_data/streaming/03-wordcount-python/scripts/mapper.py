#!/usr/bin/env python3
"""Emits each word of the input with a one."""
import sys

for line in sys.stdin:
    for word in line.strip().split():
        print(f"{word}\t1")
