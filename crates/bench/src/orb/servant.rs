//! The servant of the benchmarks. Its operations return their argument, its length or nothing,
//! compute, or return the counts of the process.

use corelane::{Octets, SystemException};
use corelane_sys::{counters, probe};
use corelane_wire::cdr::BORROW_THRESHOLD;

use super::generated::cubit::{CountedTarget, Longs, Mixed, Mixeds, Tally, Target};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo;

#[inline]
fn upcall<T>(body: impl FnOnce() -> T) -> T {
    probe!("arguments demarshalled");
    let result = body();
    probe!("servant done");
    result
}

impl Target for Echo {
    fn echo_nothing(&self) -> Result<(), SystemException> {
        Ok(())
    }

    fn echo_octet(&self, v: u8) -> Result<u8, SystemException> {
        upcall(|| Ok(v))
    }

    fn echo_short(&self, v: i16) -> Result<i16, SystemException> {
        Ok(v)
    }

    fn echo_long(&self, v: i32) -> Result<i32, SystemException> {
        upcall(|| Ok(v))
    }

    fn echo_struct(&self, v: &Mixed) -> Result<Mixed, SystemException> {
        upcall(|| Ok(*v))
    }

    fn echo_longs(&self, v: &[i32]) -> Result<Longs, SystemException> {
        upcall(|| Ok(v.to_vec()))
    }

    fn echo_structs(&self, v: &[Mixed]) -> Result<Mixeds, SystemException> {
        upcall(|| Ok(v.to_vec()))
    }

    fn echo_octets(&self, v: &[u8]) -> Result<Octets, SystemException> {
        upcall(|| if v.len() < BORROW_THRESHOLD { Ok(Octets::from(v.to_vec())) } else { corelane::keep_octets(v) })
    }

    fn echo_string(&self, v: &str) -> Result<String, SystemException> {
        Ok(v.to_owned())
    }

    fn take_octet(&self, _: u8) -> Result<(), SystemException> {
        Ok(())
    }

    fn take_longs(&self, v: &[i32]) -> Result<u32, SystemException> {
        upcall(|| Ok(length(v.len())))
    }

    fn take_octets(&self, v: &[u8]) -> Result<u32, SystemException> {
        upcall(|| Ok(length(v.len())))
    }
}

pub(crate) fn length(elements: usize) -> u32 {
    u32::try_from(elements).unwrap_or(u32::MAX)
}

/// Computes for a time proportional to `rounds`, without memory accesses.
pub(crate) fn compute(rounds: u32) -> u32 {
    (0..rounds).fold(1_u32, |value, round| value.wrapping_mul(0x9e37_79b1).rotate_left(5) ^ round)
}

impl CountedTarget for Echo {
    fn work(&self, rounds: u32) -> Result<u32, SystemException> {
        Ok(compute(rounds))
    }

    fn counted(&self) -> Result<Tally, SystemException> {
        let now = counters::snapshot();
        Ok(Tally {
            system_calls: now.syscalls,
            locks: now.locks,
            lane_locks: now.lane_locks,
            orb_locks: now.orb_locks,
            futex_calls: now.futex_calls,
            handoffs: now.handoffs,
            allocations: now.allocations,
            allocated_octets: now.allocated_bytes,
        })
    }
}
