//! Programs in Python that exchange frames with the engine, by `docs/formats/program-frames.md` alone.

/// Reads and writes frames.
const FRAMES: &str = r#"
import json, os, struct, sys
source, out = sys.stdin.buffer, sys.stdout.buffer
def frame():
    length, kind = struct.unpack("<IB3x", source.read(8))
    return chr(kind), source.read(length)
def put(kind, payload):
    out.write(struct.pack("<IB3x", len(payload), ord(kind)) + payload)
"#;

/// A program that has `frame()`, which gives kind and payload of the next frame, and `put(kind, payload)`.
pub fn frames_program(text: &str) -> String {
    format!("{FRAMES}{text}")
}
