//! System calls that a program in a sandbox cannot make: the kernel answers them with an error (seccomp).

use api::{Blame, TaskFailure};
use containment::Containment;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Connections that a program in a sandbox may make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// To sockets in the file system that it may open.
    #[default]
    None,
    Allowed,
}

/// Calls that are refused whatever their arguments are.
const REFUSED: &[i64] = &[
    // Other processes' memory and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // Keys of the user.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Operations that no filter sees.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    // The kernel and the machine.
    libc::SYS_bpf,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];
/// Calls with a process as one of their arguments, at this place; 0 is the caller.
const WITH_PROCESS: &[(i64, u8)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
];
/// Kinds of target of `setpriority` and `ioprio_set` that mean all processes of a user.
const ALL_OF_USER: [(i64, u64); 2] = [(libc::SYS_setpriority, 2), (libc::SYS_ioprio_set, 3)];
/// Flags of a clone that make a namespace, or let the tracer of the caller trace the child.
const CLONE_FLAGS: [i32; 8] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    // CLONE_NEWTIME has the place of a signal number, and is refused to a clone by the kernel itself.
    libc::CLONE_PTRACE,
];
/// Operations on a terminal that put words into the mouth of its user.
const TERMINAL: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];
/// Numbers from here on are calls in the form of another set of registers (x32), which a filter by number would miss.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Returns the kernel's filters, each as the bytes of its instructions.
pub(super) fn filters(network: Network, containment: Containment) -> Result<Vec<Vec<u8>>, TaskFailure> {
    static FILTERS: [OnceLock<Vec<Vec<u8>>>; 4] = [const { OnceLock::new() }; 4];
    let place =
        usize::from(network == Network::Allowed) * 2 + usize::from(containment == Containment::Namespaces);
    if let Some(filters) = FILTERS[place].get() {
        return Ok(filters.clone());
    }
    let made = make(network, containment).map_err(|error| {
        TaskFailure::new(Blame::Engine, format!("cannot make the filter of system calls: {error}"))
    })?;
    Ok(FILTERS[place].get_or_init(|| made).clone())
}

fn make(network: Network, containment: Containment) -> Result<Vec<Vec<u8>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let mut refuse = |call: i64, conditions: Vec<SeccompCondition>| {
        rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
        Ok::<(), seccompiler::BackendError>(())
    };
    for (call, place) in WITH_PROCESS {
        match containment {
            // The others are processes of the same attempt.
            Containment::Namespaces => refuse(*call, vec![argument(*place, SeccompCmpOp::Eq, 1)?])?,
            Containment::Subreaper => refuse(*call, vec![argument(*place, SeccompCmpOp::Ne, 0)?])?,
        }
    }
    for (call, kind) in ALL_OF_USER {
        refuse(call, vec![argument(0, SeccompCmpOp::Eq, kind)?])?;
    }
    for flag in CLONE_FLAGS.map(|flag| flag as u64) {
        refuse(libc::SYS_clone, vec![argument(0, SeccompCmpOp::MaskedEq(flag), flag)?])?;
    }
    for operation in TERMINAL {
        refuse(libc::SYS_ioctl, vec![argument(1, SeccompCmpOp::Eq, operation)?])?;
    }
    if network == Network::None {
        let unix = libc::AF_UNIX as u64;
        match containment {
            Containment::Namespaces => {
                refuse(libc::SYS_socket, vec![argument(0, SeccompCmpOp::Ne, unix)?])?;
            }
            // The sockets of services below /run are in sight.
            Containment::Subreaper => drop(rules.insert(libc::SYS_socket, Vec::new())),
        }
        rules.insert(
            libc::SYS_socketpair,
            vec![SeccompRule::new(vec![argument(0, SeccompCmpOp::Ne, unix)?])?],
        );
    }
    let refused = filter(rules, libc::EPERM)?;
    // Its flags are in memory, where a filter cannot look: the C library falls back to the older call.
    let hidden = filter(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?;
    let mut all = vec![bytes(&refused), bytes(&hidden)];
    #[cfg(target_arch = "x86_64")]
    all.push(bytes(&refuse_x32()));
    Ok(all)
}

fn argument(
    place: u8,
    operation: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(place, SeccompCmpArgLen::Dword, operation, value)
}

fn filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    errno: i32,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let action = SeccompAction::Errno(errno as u32);
    BpfProgram::try_from(SeccompFilter::new(rules, SeccompAction::Allow, action, architecture)?)
}

/// Refuses calls of the x32 form: load the number, compare, return an error or allow.
#[cfg(target_arch = "x86_64")]
fn refuse_x32() -> BpfProgram {
    let instruction = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: code as u16, jt, jf, k };
    vec![
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn bytes(program: &BpfProgram) -> Vec<u8> {
    let bytes = |instruction: &sock_filter| {
        let [code0, code1] = instruction.code.to_ne_bytes();
        let [k0, k1, k2, k3] = instruction.k.to_ne_bytes();
        [code0, code1, instruction.jt, instruction.jf, k0, k1, k2, k3]
    };
    program.iter().flat_map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::{Network, filters};
    use containment::Containment;

    #[test]
    fn filters_fit_into_the_kernel() {
        for network in [Network::None, Network::Allowed] {
            for containment in [Containment::Subreaper, Containment::Namespaces] {
                let made = filters(network, containment).unwrap();
                assert!(made.iter().all(|filter| filter.len() % 8 == 0 && filter.len() / 8 <= 4096));
            }
        }
    }
}
