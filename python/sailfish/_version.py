"""The version of this package. It equals the version of the engine in `Cargo.toml`, which is the version of the wheel."""

VERSION = "0.1.0"
