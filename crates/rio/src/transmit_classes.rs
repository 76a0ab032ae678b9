//! Transmit classes: the queueing discipline HTB with a transmit class for each stream (tc-htb(8)).
//!
//! Packets leave in the order of the priorities of their transmit classes. A stream's sockets
//! choose the stream's transmit class by `SO_PRIORITY`; packets of all other sockets are in the
//! transmit class of best effort.
//!
//! The number of the discipline marks it as one of real-time I/O, so a later process finds and
//! removes the discipline that a killed process has left.

use std::io;

use corelane_sys::netlink::{Netlink, add_attribute, add_nested, find_attribute, flags, read_u32_at};

/// Number of the discipline, in the upper 16 bits.
const DISCIPLINE: u32 = 0xc0e0_0000;
/// Number of the transmit class of best effort.
const BEST_EFFORT: u32 = DISCIPLINE | 1;
/// Rate in bytes per second of a transmit class without a ceiling: 1 Tbit/s, which interfaces do
/// not reach.
const UNLIMITED: u64 = 125_000_000_000;
const BEST_EFFORT_PRIORITY: u8 = 7;
/// Bytes that a transmit class sends before the next one of equal priority may send.
const QUANTUM: u32 = 60_000;
/// Bytes that a transmit class may send at once after a pause.
const BURST: u64 = 65_536;
/// The kernel's unit of the times in HTB's parameters, in nanoseconds (`PSCHED_SHIFT`).
const TICK: u64 = 64;

// include/uapi/linux/rtnetlink.h and pkt_sched.h.
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTCLASS: u16 = 40;
const RTM_DELTCLASS: u16 = 41;
const TC_H_ROOT: u32 = u32::MAX;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
/// Size of `struct tcmsg` in bytes.
const TCMSG: usize = 20;

/// Owner of the queueing discipline at the root of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RootDiscipline {
    /// The kernel's default, which comes back when another discipline is removed.
    Default,
    /// A discipline that a process has made for real-time I/O.
    Ours,
    /// A discipline that another owner has made. The text has its kind and number.
    Foreign(String),
}

/// Returns the transmit class of a stream's packets, which is the `SO_PRIORITY` of its sockets.
///
/// Disciplines without transmit classes use the last four bits of `SO_PRIORITY` as a priority from
/// 0 to 15. The function sets these bits to 6, the highest priority without `CAP_NET_ADMIN`.
/// Streams whose numbers differ by a multiple of 4,094 have the same transmit class.
pub(crate) fn class_of_stream(number: u32) -> u32 {
    DISCIPLINE | ((number.wrapping_sub(1) % 4_094 + 1) << 4) | 6
}

/// Returns the priority of a transmit class, from 0 (most urgent) to 6, for the native priority of
/// a stream.
pub(crate) fn class_priority(native: Option<u8>) -> u8 {
    6 - native.map_or(0, |native| native.min(99) / 15)
}

pub(crate) fn root_discipline(netlink: &Netlink, interface: u32) -> io::Result<RootDiscipline> {
    for body in netlink.query(RTM_GETQDISC, true, &message(interface, 0, 0))? {
        let of_interface = read_u32_at(&body, 4) == Some(interface);
        if !of_interface || read_u32_at(&body, 12) != Some(TC_H_ROOT) {
            continue;
        }
        let number = read_u32_at(&body, 8).unwrap_or(0);
        let kind = find_attribute(body.get(TCMSG..).unwrap_or_default(), TCA_KIND).unwrap_or_default();
        let kind = String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned();
        return Ok(match number {
            0 => RootDiscipline::Default,
            DISCIPLINE if kind == "htb" => RootDiscipline::Ours,
            _ => RootDiscipline::Foreign(format!("{kind} {:x}:", number >> 16)),
        });
    }
    Ok(RootDiscipline::Default)
}

/// Puts the discipline with the transmit class of best effort at the root of the interface.
/// `ceiling` is the maximum rate of best effort in bytes per second.
///
/// # Errors
/// If the root has a discipline other than the default, even if another process added it after the
/// caller's look-up, or if the kernel refuses. If the transmit class of best effort cannot be
/// added, the function removes the discipline again.
pub(crate) fn create(netlink: &Netlink, interface: u32, ceiling: Option<u64>) -> io::Result<()> {
    let mut body = message(interface, DISCIPLINE, TC_H_ROOT);
    add_attribute(&mut body, TCA_KIND, b"htb\0");
    // `struct tc_htb_glob`: version, divisor for quanta, default class, debug, direct packets.
    let global = [3, 10, BEST_EFFORT & 0xffff, 0, 0].map(u32::to_ne_bytes).concat();
    let mut options = Vec::new();
    add_attribute(&mut options, TCA_HTB_INIT, &global);
    add_nested(&mut body, TCA_OPTIONS, &options);
    netlink.request(RTM_NEWQDISC, flags::CREATE | flags::EXCLUSIVE, &body)?;
    let ceiling = ceiling.unwrap_or(UNLIMITED);
    add_class(netlink, interface, BEST_EFFORT, ceiling, BEST_EFFORT_PRIORITY).inspect_err(|_| {
        let _ = remove(netlink, interface);
    })
}

pub(crate) fn remove(netlink: &Netlink, interface: u32) -> io::Result<()> {
    netlink.request(RTM_DELQDISC, 0, &message(interface, DISCIPLINE, TC_H_ROOT))
}

pub(crate) fn add_stream(netlink: &Netlink, interface: u32, class: u32, priority: u8) -> io::Result<()> {
    add_class(netlink, interface, class, UNLIMITED, priority)
}

pub(crate) fn remove_stream(netlink: &Netlink, interface: u32, class: u32) -> io::Result<()> {
    netlink.request(RTM_DELTCLASS, 0, &message(interface, class, DISCIPLINE))
}

fn add_class(netlink: &Netlink, interface: u32, class: u32, rate: u64, priority: u8) -> io::Result<()> {
    let rate = rate.max(1);
    let burst = u32::try_from(BURST * 1_000_000_000 / rate / TICK).unwrap_or(u32::MAX).max(1);
    let short = u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes();
    // `struct tc_ratespec`: cell log, link layer (Ethernet: 1), overhead, alignment, minimum, rate.
    let spec = [&[0, 1, 0, 0, 0, 0, 0, 0][..], &short].concat();
    // `struct tc_htb_opt`: rate, ceiling, burst, burst of the ceiling, quantum, level, priority.
    let numbers = [burst, burst, QUANTUM, 0, priority.into()].map(u32::to_ne_bytes).concat();
    let mut options = Vec::new();
    add_attribute(&mut options, TCA_HTB_PARMS, &[spec.clone(), spec, numbers].concat());
    if u32::try_from(rate).is_err() {
        add_attribute(&mut options, TCA_HTB_RATE64, &rate.to_ne_bytes());
        add_attribute(&mut options, TCA_HTB_CEIL64, &rate.to_ne_bytes());
    }
    let mut body = message(interface, class, DISCIPLINE);
    add_attribute(&mut body, TCA_KIND, b"htb\0");
    add_nested(&mut body, TCA_OPTIONS, &options);
    netlink.request(RTM_NEWTCLASS, flags::CREATE | flags::REPLACE, &body)
}

/// Returns a `struct tcmsg`: family, interface, number, parent, information.
fn message(interface: u32, number: u32, parent: u32) -> Vec<u8> {
    [0, interface, number, parent, 0].map(u32::to_ne_bytes).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_streams_are_distinct_and_have_priority_six_elsewhere() {
        let classes: std::collections::BTreeSet<u32> = (1..=4_094).map(class_of_stream).collect();
        assert_eq!(classes.len(), 4_094);
        assert!(classes.iter().all(|class| class & 0xf == 6 && class >> 16 == DISCIPLINE >> 16));
        assert_eq!(class_of_stream(4_095), class_of_stream(1));
        let _ = class_of_stream(0);
    }

    #[test]
    fn higher_native_priorities_have_more_urgent_classes() {
        let priorities = [None, Some(1), Some(15), Some(50), Some(90), Some(99), Some(255)].map(class_priority);
        assert_eq!(priorities, [6, 6, 5, 3, 0, 0, 0]);
    }
}
