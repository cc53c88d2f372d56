#!/usr/bin/env python3
"""Columns: station 0-10, year 11-14, month and day, temperature in tenths with its sign 19-23, quality 24."""
import sys

for line in sys.stdin:
    year, temperature, quality = line[11:15], line[19:24], line[24:25]
    if temperature != "+9999" and quality in "01459":
        print(year, temperature, sep="\t")
