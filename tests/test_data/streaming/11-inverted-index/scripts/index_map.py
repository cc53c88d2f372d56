#!/usr/bin/env python3
import os
import re
import sys

path = os.environ.get("mapreduce_map_input_file") or os.environ["map_input_file"]
document = path.rsplit("/", 1)[-1]
for line in sys.stdin:
    for word in re.findall("[a-z]+", line.lower()):
        print(f"{word}\t{document}")
