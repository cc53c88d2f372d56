"""Near-duplicate removal: keeps one of the documents of a corpus that are nearly the same text.

The way of it: the words of a document, three in a row, are its shingles. MinHash makes of them a signature, whose equal places tell how
many shingles two documents share (Broder 1997). A band is some places of a signature; documents that agree in all places of a band are
candidates. Candidates whose shingles overlap enough (Jaccard) are near-duplicates. What is connected through near-duplicates is one group,
of which the document with the smallest name stays.

The groups are found by one reduce task with union-find: it is right whatever the shape of a group, while labels that travel along edges
need as many rounds as the longest way. It holds the names of the documents that have a near-duplicate, and nothing else of the corpus.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import command
import generated

if TYPE_CHECKING:
    import sailfish as sf

SHINGLE_WORDS = 3
BANDS = 8
PLACES_PER_BAND = 4
SIMILARITY_MIN = 0.7

#: A Mersenne prime above all shingles, which have 32 bits.
PRIME = (1 << 61) - 1
_coefficients = random.Random(61)
HASHES = [(_coefficients.randrange(1, PRIME), _coefficients.randrange(PRIME)) for _ in range(BANDS * PLACES_PER_BAND)]

Edge = tuple[str, str]
#: A band's number and its places of the signature.
Bucket = tuple[int, ...]


def document(line: str) -> tuple[str, str]:
    """Returns ``(name, text)``."""
    name, _, text = line.partition("\t")
    return name, text


def shingles(text: str) -> set[int]:
    """Returns hashes of each three words in a row; of all words, where there are fewer."""
    words = text.split()
    count = max(1, len(words) - SHINGLE_WORDS + 1)
    return {zlib.crc32(" ".join(words[start : start + SHINGLE_WORDS]).encode()) for start in range(count)}


def buckets(item: tuple[str, str]) -> Iterator[tuple[Bucket, str]]:
    """Yields ``(bucket, name)`` for each band of a document's signature."""
    name, text = item
    hashed = shingles(text)
    signature = [min((a * shingle + b) % PRIME for shingle in hashed) for a, b in HASHES]
    for band in range(BANDS):
        yield (band, *signature[band * PLACES_PER_BAND : (band + 1) * PLACES_PER_BAND]), name


def candidates(_bucket: Bucket, names: Iterable[str]) -> Iterator[Edge]:
    """Yields each two documents of a bucket, the smaller name first."""
    return combinations(sorted(names), 2)


def with_first_text(item: tuple[str, tuple[str, str]]) -> tuple[str, Edge]:
    """Returns ``(second, (first, text of first))`` of ``(first, (second, text of first))``."""
    first, (second, text) = item
    return second, (first, text)


def is_similar(item: tuple[str, tuple[Edge, str]]) -> bool:
    """Returns whether the shingles of the two overlap enough, in integers' terms and not in those of their signatures."""
    _, ((_, first_text), second_text) = item
    first, second = shingles(first_text), shingles(second_text)
    return len(first & second) >= SIMILARITY_MIN * len(first | second)


def edge(item: tuple[str, tuple[Edge, str]]) -> Edge:
    """Returns ``(first, second)``."""
    second, ((first, _), _) = item
    return first, second


def same_group(_edge: Edge) -> int:
    """Puts all edges into one group."""
    return 0


def duplicates(_key: int, edges: Iterable[Edge]) -> Iterator[tuple[str, str]]:
    """Yields ``(document, the document that is kept in place of it)`` for each that goes: union-find, where the smallest of a tree is its
    root."""
    parents: dict[str, str] = {}

    def root_of(name: str) -> str:
        root = name
        while (parent := parents.get(root, root)) != root:
            root = parent
        while (parent := parents.get(name, name)) != root:
            parents[name], name = root, parent
        return root

    for first, second in edges:
        smaller, larger = sorted((root_of(first), root_of(second)))
        parents[larger] = smaller
    for name in sorted(parents):
        if (root := root_of(name)) != name:
            yield name, root


def is_kept(item: tuple[str, tuple[str, str | None]]) -> bool:
    return item[1][1] is None


def text_of(kept: tuple[str, None]) -> str:
    return kept[0]


def flow(inputs: Path) -> sf.Dataset[tuple[str, str]]:
    """Returns a dataset of ``(name, text)`` of the documents that are kept."""
    import sailfish as sf

    documents = sf.read_text(inputs).map(document)
    pairs = documents.flat_map(buckets).group_by().flat_map(candidates).distinct()
    edges = pairs.join(documents).map(with_first_text).join(documents).filter(is_similar).map(edge)
    gone = edges.group_by(same_group).flat_map(duplicates)
    return documents.join(gone, how="left").filter(is_kept).map_values(text_of)


def generate(directory: Path, size_bytes: int, seed: int, compress: bool = False) -> None:
    """Writes lines of name, words with blanks between. One document in ten is an altered copy of one that lies shortly before it, or of its
    copy."""
    vocabulary = generated.zipf_urn([f"word{number}" for number in range(5_000)])
    files = generated.file_count(size_bytes)

    def altered(rng: random.Random, words: list[str]) -> list[str]:
        # Two words in a hundred differ: nearly nine shingles in ten are still the same.
        copied = words.copy()
        for place in rng.sample(range(len(words)), k=max(1, len(words) // 50)):
            copied[place] = rng.choice(vocabulary)
        return copied

    def block(rng: random.Random, index: int, first: int) -> list[str]:
        texts: list[list[str]] = []
        for number in range(generated.BLOCK_LINES):
            if number and rng.random() < 0.1:
                texts.append(altered(rng, texts[rng.randrange(max(0, number - 20), number)]))
            else:
                texts.append(rng.choices(vocabulary, k=rng.randint(40, 160)))
        return [f"doc-{(first + number) * files + index:09d}\t{' '.join(words)}" for number, words in enumerate(texts)]

    generated.write_files(directory, "", files, size_bytes, seed, block, compress)


if __name__ == "__main__":
    command.main(generate, flow)
