#!/usr/bin/env python3
"""Prints the distance of each reading to the one before it in the same year; fails where the order is broken."""
import sys
from decimal import Decimal

last_year, last = None, None
for line in sys.stdin:
    key, station = line.rstrip("\n").split("\t")
    year, reading = key.split(",")
    reading = Decimal(reading)
    if year == last_year:
        if reading < last:
            sys.exit(f"{year}: {reading} after {last}")
        print(f"{year}\t{reading}\t+{reading - last}\t{station}")
    else:
        print(f"{year}\t{reading}\tfirst\t{station}")
    last_year, last = year, reading
