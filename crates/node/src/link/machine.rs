//! Samples of this machine: differences of the kernel's counters in `/proc`. A missing counter (another kernel, a
//! sandbox) counts as zero.

use crate::clock::now_ns;
use api::machine::MachineSample;
use procfs::net::{DeviceStatus, InterfaceDeviceStatus};
use procfs::{CpuTime, Current, CurrentSI, DiskStats, KernelStats, Meminfo};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a sector in the kernel's disk counters, independent of the real sector size.
const SECTOR_BYTES: u64 = 512;
const PERMILLE: u64 = 1000;

/// Counters since the start of the machine.
#[derive(Clone, Debug, Default)]
struct Counts {
    cpu_busy: u64,
    cpu_all: u64,
    /// By device: milliseconds with I/O in progress, sectors read, sectors written.
    disks: BTreeMap<Device, [u64; 3]>,
    received_bytes: u64,
    sent_bytes: u64,
    appended_bytes: u64,
}

/// Major and minor number.
type Device = (i32, i32);

/// Remembers the counters of the previous sample.
pub(crate) struct Machine {
    /// Devices with directories of the node.
    devices: BTreeSet<Device>,
    before: Counts,
    taken: Instant,
}

impl Machine {
    /// Begins to count.
    pub fn new<'a>(disks: impl Iterator<Item = &'a Path>) -> Self {
        let device = |path: &Path| {
            let device = rustix::fs::stat(path).ok()?.st_dev;
            Some((rustix::fs::major(device) as i32, rustix::fs::minor(device) as i32))
        };
        let devices: BTreeSet<Device> = disks.filter_map(device).collect();
        let before = Counts::now(&devices, 0);
        Self { devices, before, taken: Instant::now() }
    }

    /// Returns the state of the machine, and the events since the previous call. `appended_bytes`: total bytes in
    /// chunks of running jobs.
    pub fn sample(&mut self, appended_bytes: u64) -> MachineSample {
        let counts = Counts::now(&self.devices, appended_bytes);
        let elapsed = std::mem::replace(&mut self.taken, Instant::now()).elapsed();
        let sample = counts.since(&self.before, elapsed);
        self.before = counts;
        MachineSample { time_ns: now_ns(), memory_used_bytes: memory_used_bytes(), ..sample }
    }
}

impl Counts {
    fn now(devices: &BTreeSet<Device>, appended_bytes: u64) -> Self {
        let mut counts = Self { appended_bytes, ..Self::default() };
        if let Ok(stats) = KernelStats::current() {
            (counts.cpu_busy, counts.cpu_all) = cpu_ticks(&stats.total);
        }
        if let Ok(DiskStats(disks)) = DiskStats::current() {
            for disk in disks.into_iter().filter(|disk| devices.contains(&(disk.major, disk.minor))) {
                let told = [disk.time_in_progress, disk.sectors_read, disk.sectors_written];
                counts.disks.insert((disk.major, disk.minor), told);
            }
        }
        if let Ok(InterfaceDeviceStatus(interfaces)) = InterfaceDeviceStatus::current() {
            let others = |status: &&DeviceStatus| status.name != "lo";
            for status in interfaces.values().filter(others) {
                counts.received_bytes += status.recv_bytes;
                counts.sent_bytes += status.sent_bytes;
            }
        }
        counts
    }

    fn since(&self, before: &Self, elapsed: Duration) -> MachineSample {
        let elapsed_ms = (elapsed.as_millis() as u64).max(1);
        let mut sample = MachineSample {
            cpu_permille: permille(
                self.cpu_busy,
                before.cpu_busy,
                self.cpu_all.saturating_sub(before.cpu_all),
            ),
            // Counters of a removed interface, or of a finished job, are missing.
            network_received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            network_sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            appended_bytes: self.appended_bytes.saturating_sub(before.appended_bytes),
            ..MachineSample::default()
        };
        for (device, now) in &self.disks {
            let then = before.disks.get(device).unwrap_or(now);
            let busy = permille(now[0], then[0], elapsed_ms);
            sample.disk_busy_permille = sample.disk_busy_permille.max(busy);
            sample.disk_read_bytes += now[1].saturating_sub(then[1]) * SECTOR_BYTES;
            sample.disk_written_bytes += now[2].saturating_sub(then[2]) * SECTOR_BYTES;
        }
        sample
    }
}

/// Returns the growth of a counter as a part of a whole, in thousandths.
fn permille(now: u64, before: u64, whole: u64) -> u32 {
    (now.saturating_sub(before).saturating_mul(PERMILLE) / whole.max(1)).min(PERMILLE) as u32
}

/// Returns busy ticks and all ticks. The time of guests is included in user time.
fn cpu_ticks(cpu: &CpuTime) -> (u64, u64) {
    let interrupts = cpu.irq.unwrap_or(0) + cpu.softirq.unwrap_or(0);
    let busy = cpu.user + cpu.nice + cpu.system + interrupts + cpu.steal.unwrap_or(0);
    (busy, busy + cpu.idle + cpu.iowait.unwrap_or(0))
}

fn memory_used_bytes() -> u64 {
    let used =
        |memory: Meminfo| memory.mem_total.saturating_sub(memory.mem_available.unwrap_or(memory.mem_free));
    Meminfo::current().map(used).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Counts, Machine};
    use api::machine::MachineSample;
    use std::time::Duration;

    #[test]
    fn differences_become_a_sample() {
        let before = Counts {
            cpu_busy: 100,
            cpu_all: 1000,
            disks: [((8, 0), [50, 10, 20]), ((8, 16), [0, 0, 0])].into(),
            received_bytes: 7,
            sent_bytes: 90,
            appended_bytes: 5000,
        };
        let now = Counts {
            cpu_busy: 150,
            cpu_all: 1200,
            disks: [((8, 0), [300, 12, 24]), ((8, 16), [900, 1, 0]), ((8, 32), [5, 5, 5])].into(),
            received_bytes: 1007,
            // An interface has disappeared.
            sent_bytes: 10,
            appended_bytes: 4000,
        };
        let expected = MachineSample {
            cpu_permille: 250,
            disk_busy_permille: 900,
            disk_read_bytes: 3 * 512,
            disk_written_bytes: 4 * 512,
            network_received_bytes: 1000,
            ..MachineSample::default()
        };
        assert_eq!(now.since(&before, Duration::from_secs(1)), expected);
        assert_eq!(now.since(&before, Duration::from_millis(100)).disk_busy_permille, 1000);
    }

    #[test]
    fn this_machine_can_be_sampled() {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::new([dir.path()].into_iter());
        let sample = machine.sample(17);
        assert!(sample.memory_used_bytes > 0 && sample.time_ns > 0 && sample.cpu_permille <= 1000);
        assert_eq!((sample.appended_bytes, machine.sample(20).appended_bytes), (17, 3));
    }
}
