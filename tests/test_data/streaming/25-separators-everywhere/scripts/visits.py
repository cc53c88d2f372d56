#!/usr/bin/env python3
"""site::page::visitor::seconds; the first two are the key."""
import sys

for line in sys.stdin:
    visitor, site, page, seconds = line.split()
    print(site, page, visitor, seconds, sep="::")
