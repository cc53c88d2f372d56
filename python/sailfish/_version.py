"""The version of this package: that of the engine in `Cargo.toml`, from which the wheel takes its own."""

VERSION = "0.1.0"
