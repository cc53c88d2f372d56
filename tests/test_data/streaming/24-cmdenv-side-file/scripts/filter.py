#!/usr/bin/env python3
import os
import re
import sys

with open(os.environ["STOPWORDS"]) as file:
    stopwords = set(file.read().split())
shortest = int(os.environ["MIN_LENGTH"])
for line in sys.stdin:
    for word in re.findall("[a-z]+", line.lower()):
        if len(word) >= shortest and word not in stopwords:
            print(word)
