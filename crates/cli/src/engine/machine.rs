//! Resources of the machine for this process: memory, cores, open files.

use crate::show::quantity::bytes;
use anyhow::ensure;
use rustix::process::{Resource, Rlimit};
use std::path::Path;

/// Maximum number of slots of a machine.
pub const SLOTS_MAX: u32 = api::control::SLOTS_MAX;

/// Returns the default of `--memory`: half of the machine's memory or of the control group's limit, whichever is less,
/// but never below the minimum.
pub fn default_memory_bytes() -> u64 {
    (memory_bytes() / 2).max(mapreduce::layout::MEMORY_BYTES_MIN)
}

/// Returns the memory for files that programs of pipelines pass to each other in this process: half of that for jobs.
pub fn file_memory_bytes() -> u64 {
    default_memory_bytes() / 2
}

/// Returns the memory of the machine, or the limit of the control group if that is less.
fn memory_bytes() -> u64 {
    let limit = control_group_memory_bytes(Path::new("/sys/fs/cgroup"), &own_control_groups());
    limit.unwrap_or(u64::MAX).min(machine_memory_bytes())
}

/// Returns an error for a `--memory` beyond the memory of the machine.
pub fn check_memory(asked_bytes: u64) -> anyhow::Result<()> {
    let there = memory_bytes();
    ensure!(
        asked_bytes <= there.max(mapreduce::layout::MEMORY_BYTES_MIN),
        "--memory: {} are more than the {} of this machine; give less, or leave it out to use half of that",
        bytes(asked_bytes),
        bytes(there)
    );
    Ok(())
}

/// Returns the default of `--slots`: one for each core this process may use.
pub fn default_slots() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    u32::try_from(cores).unwrap_or(SLOTS_MAX).clamp(1, SLOTS_MAX)
}

/// Raises the soft limit of open files to the hard one: a merge holds a file for each run. A failure is ignored: only
/// the lower limit remains.
pub fn raise_open_file_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit { current: limit.maximum, maximum: limit.maximum },
    );
}

/// Returns the number of files that this process may have open at once.
pub fn open_files_max() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn machine_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)))
}

fn own_control_groups() -> String {
    std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// Returns the lowest memory limit of our control group and those above it. `groups` has the form of
/// `/proc/self/cgroup`: lines `NUMBER:CONTROLLERS:PATH`, without controllers in version 2.
fn control_group_memory_bytes(root: &Path, groups: &str) -> Option<u64> {
    let mut lowest: Option<u64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (mount, file_name) = match controllers {
            "" => (root.to_path_buf(), "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // Inside a container the path may be that of the host, which does not exist; its root is ours in this case.
        let own = mount.join(group.trim_start_matches('/'));
        for directory in own.ancestors().take_while(|directory| directory.starts_with(&mount)) {
            let text = std::fs::read_to_string(directory.join(file_name)).unwrap_or_default();
            if let Ok(limit) = text.trim().parse::<u64>() {
                lowest = Some(lowest.map_or(limit, |before| before.min(limit)));
            }
        }
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::{control_group_memory_bytes, default_memory_bytes};
    use std::fs;

    #[test]
    fn the_lowest_limit_on_the_way_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let check = |groups: &str, expected| {
            assert_eq!(control_group_memory_bytes(root.path(), groups), expected, "{groups}");
        };
        check("0::/a/b\n", None);
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/memory.max"), "1000\n").unwrap();
        fs::write(root.path().join("a/b/memory.max"), "max\n").unwrap();
        check("0::/a/b\n", Some(1000));
        fs::write(root.path().join("a/b/memory.max"), "300\n").unwrap();
        check("0::/a/b\n", Some(300));
        check("0::/\n", None);
        fs::create_dir_all(root.path().join("memory/c")).unwrap();
        fs::write(root.path().join("memory/c/memory.limit_in_bytes"), "77\n").unwrap();
        check("5:cpu:/c\n4:memory,other:/c\n", Some(77));
        check("4:memory:/not/there/c\nnonsense", None);
    }

    #[test]
    fn the_default_is_usable() {
        assert!(default_memory_bytes() >= mapreduce::layout::MEMORY_BYTES_MIN);
    }
}
