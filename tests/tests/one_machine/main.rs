//! Jobs on one machine, without a server: formats, keys, programs, outputs, errors, looking back.

mod bad_input;
mod crash_points;
mod debugging;
mod disks;
mod field_report;
mod formats;
mod hadoop;
mod interrupts;
mod io_faults;
mod io_injected;
mod key_tails;
mod keys;
mod looking;
mod lossless;
mod memory;
mod objects;
mod older_state;
mod planted_faults;
mod program_frames;
mod python_report;
mod random_jobs;
mod records;
mod streaming;
mod stretches;
mod tera;
mod word_count;
