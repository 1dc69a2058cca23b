//! The filters answer each call as the table says. The kernel's interpreter is written out here, so
//! that every number and many arguments can be asked about.

use std::collections::BTreeSet;

use super::*;
use crate::call::Call;

const PROCESS: u32 = 4321;
const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
const X32: u32 = 0x4000_0000;

/// What `struct seccomp_data` has.
struct Asked {
    number: u32,
    architecture: u32,
    arguments: [u64; 6],
}

impl Asked {
    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.architecture,
            16..64 => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
            }
            _ => panic!("a filter reads at {offset}"),
        }
    }
}

/// Runs one filter.
fn answer(program: &BpfProgram, asked: &Asked) -> u32 {
    let (mut at, mut word) = (0, 0);
    loop {
        let instruction = &program[at];
        at += 1;
        let k = instruction.k;
        let mut jump = |is_true: bool| {
            at += usize::from(if is_true { instruction.jt } else { instruction.jf });
        };
        match instruction.code {
            0x20 => word = asked.word(k),
            0x15 => jump(word == k),
            0x25 => jump(word > k),
            0x35 => jump(word >= k),
            0x54 => word &= k,
            0x05 => at += k as usize,
            0x06 => return k,
            code => panic!("instruction {code:#x}"),
        }
    }
}

/// What the kernel does: the strictest answer of all filters.
fn kernel(filters: &Filters, asked: &Asked) -> u32 {
    let rank = |answer: &u32| (*answer & 0xffff_0000).cast_signed();
    filters.0.iter().map(|program| answer(program, asked)).min_by_key(rank).unwrap()
}

/// What the table says.
fn table(asked: &Asked) -> u32 {
    let holds = |argument: &Argument| {
        let value = asked.arguments[usize::from(argument.index)];
        let low = value as u32;
        match argument.is {
            Is::Equal(expected) => low == expected,
            Is::Not(other) => low != other,
            Is::AtMost(most) => low <= most,
            Is::Masked { mask, value } => low & mask == value,
            Is::Null => value == 0,
            Is::OwnProcess => low == PROCESS,
        }
    };
    let is_listed = |call: &&Call| {
        call.number == asked.number
            && (call.rules.is_empty() || call.rules.iter().any(|rule| rule.iter().all(holds)))
    };
    match CALLS.iter().find(is_listed).map(|call| call.answer) {
        Some(Answer::Run) => libc::SECCOMP_RET_ALLOW,
        Some(Answer::Fail(error)) => libc::SECCOMP_RET_ERRNO | u32::from(error),
        None => libc::SECCOMP_RET_TRAP,
    }
}

/// Values at which a condition of the table may change.
fn values() -> Vec<u64> {
    let conditions = CALLS.iter().flat_map(|call| call.rules.iter().copied().flatten());
    let mut values = BTreeSet::from([0, 1, u32::MAX.into(), 1 << 31, 1 << 32, u64::MAX]);
    for condition in conditions {
        let near = match condition.is {
            Is::Equal(value) | Is::Not(value) | Is::AtMost(value) => vec![value],
            Is::Masked { mask, value } => vec![value, mask, !mask, value | !mask],
            Is::Null => vec![0],
            Is::OwnProcess => vec![PROCESS],
        };
        for value in near {
            for value in [value, value.wrapping_add(1), value.wrapping_sub(1)] {
                values.extend([u64::from(value), u64::from(value) | 1 << 32]);
            }
        }
    }
    values.into_iter().collect()
}

#[test]
fn filters_and_table_agree_on_every_call() {
    let filters = Filters::new(PROCESS).unwrap();
    let values = values();
    assert!(values.len() > 100);
    let (mut allowed, mut asked_about) = (BTreeSet::new(), 0);
    for number in (0..600).chain([X32, X32 + 1, X32 + 257, X32 + 520, u32::MAX]) {
        let mut ask = |arguments| {
            let asked = Asked { number, architecture: X86_64, arguments };
            let (by_filter, by_table) = (kernel(&filters, &asked), table(&asked));
            assert_eq!(by_filter, by_table, "{number} {arguments:x?}");
            asked_about += 1;
            if by_filter == libc::SECCOMP_RET_ALLOW {
                allowed.insert(number);
            }
        };
        for value in &values {
            for index in 0..6 {
                for others in [0, 1, u64::MAX] {
                    let mut arguments = [others; 6];
                    arguments[index] = *value;
                    ask(arguments);
                }
            }
            ask([*value; 6]);
        }
    }
    assert!(asked_about > 500_000, "{asked_about}");
    let running = CALLS.iter().filter(|call| call.answer == Answer::Run);
    assert_eq!(allowed, running.map(|call| call.number).collect());
}

#[test]
fn calls_of_other_architectures_kill() {
    let filters = Filters::new(PROCESS).unwrap();
    for number in 0..600 {
        let asked = Asked { number, architecture: I386, arguments: [0; 6] };
        assert_eq!(kernel(&filters, &asked), libc::SECCOMP_RET_KILL_PROCESS);
    }
}

#[test]
fn the_table_is_in_order_and_says_why() {
    assert!(CALLS.is_sorted_by_key(|call| call.number));
    let numbers: BTreeSet<u32> = CALLS.iter().map(|call| call.number).collect();
    assert_eq!(numbers.len(), CALLS.len(), "a call is there twice");
    for call in CALLS {
        assert_eq!(crate::refused::name_of(call.number), Some(call.name));
        assert!(call.reason.len() > 10, "`{}` has no reason", call.name);
        assert_eq!(call.when.is_empty(), call.rules.is_empty(), "`{}`", call.name);
    }
}

/// What would open, connect, start or attach to anything never runs, whatever its arguments.
#[test]
fn no_call_opens_or_starts_anything() {
    let forbidden = [
        "open",
        "openat",
        "openat2",
        "creat",
        "open_by_handle_at",
        "socket",
        "connect",
        "accept",
        "bind",
        "execve",
        "execveat",
        "fork",
        "vfork",
        "kill",
        "ptrace",
        "pkey_mprotect",
        "process_vm_readv",
        "process_vm_writev",
        "pidfd_open",
        "io_uring_setup",
        "io_uring_enter",
        "bpf",
        "seccomp",
        "unshare",
        "setns",
        "mount",
        "userfaultfd",
        "shmat",
        "personality",
        "stat",
        "lstat",
    ];
    for name in forbidden {
        assert!(CALLS.iter().all(|call| call.name != name), "{name}");
    }
    for name in ["newfstatat", "statx"] {
        let call = CALLS.iter().find(|call| call.name == name).unwrap();
        assert_eq!(call.answer, Answer::Fail(libc::ENOSYS as u16), "{name}");
    }
}
