"""Which version this is; the wheel takes its own from the same file of the engine."""

VERSION = "0.1.0"
