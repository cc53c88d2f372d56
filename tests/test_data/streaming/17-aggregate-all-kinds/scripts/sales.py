#!/usr/bin/env python3
"""Input: shop TAB product TAB pieces TAB price. DoubleValueSum adds quarters, which are exact in any order."""
import sys

for line in sys.stdin:
    shop, product, pieces, price = line.rstrip("\n").split("\t")
    print(f"LongValueSum:{shop} pieces\t{pieces}")
    print(f"LongValueMax:{shop} most pieces\t{pieces}")
    print(f"LongValueMin:{shop} fewest pieces\t{pieces}")
    print(f"DoubleValueSum:{shop} price\t{price}")
    print(f"UniqValueCount:{shop} products\t{product}")
    print(f"StringValueMax:{shop} last product\t{product}")
    print(f"StringValueMin:{shop} first product\t{product}")
    print(f"ValueHistogram:{shop} by product\t{product}")
    print(f"ValueHistogram:all by shop\t{shop}\t{abs(int(pieces))}")
