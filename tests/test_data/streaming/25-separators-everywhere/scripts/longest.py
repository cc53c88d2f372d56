#!/usr/bin/env python3
"""Reads site::page|visitor::seconds and prints site;page;longest visit;visits."""
import itertools
import sys

rows = (line.rstrip("\n").split("|") for line in sys.stdin)
for key, group in itertools.groupby(rows, key=lambda row: row[0]):
    visits = [int(value.split("::")[1]) for _, value in group]
    print(*key.split("::"), max(visits), len(visits), sep=";")
