//! Buffers for the announced lengths of large messages use no memory until the bytes arrive. The
//! test has a process of its own, because it measures the process's memory.

use corelane_sys::buffer::Buffer;

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn announced_lengths_cost_only_addresses() {
    let before = resident_kib();
    let buffers: Vec<_> = (0..200).map(|_| Buffer::with_capacity(60 << 20).unwrap()).collect();
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB for {} reservations", buffers.len());
}
