//! What a peer announces and does not send costs no memory. Alone in its process, whose memory is looked at.

use corelane_sys::buffer::Buffer;

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn announced_lengths_cost_addresses_only() {
    let before = resident_kib();
    let buffers: Vec<_> = (0..200).map(|_| Buffer::with_capacity(60 << 20).unwrap()).collect();
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB for {} reservations", buffers.len());
}
