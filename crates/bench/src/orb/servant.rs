//! The servant that all benchmarks of calls use: each operation returns its argument.

use corelane::{Octets, SystemException};
use corelane_sys::counters;

use super::generated::cubit::{CountedTarget, Longs, Mixed, Mixeds, Tally, Target};

/// See idl/cubit.idl.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo;

impl Target for Echo {
    fn echo_nothing(&self) -> Result<(), SystemException> {
        Ok(())
    }

    fn echo_octet(&self, v: u8) -> Result<u8, SystemException> {
        Ok(v)
    }

    fn echo_short(&self, v: i16) -> Result<i16, SystemException> {
        Ok(v)
    }

    fn echo_long(&self, v: i32) -> Result<i32, SystemException> {
        Ok(v)
    }

    fn echo_struct(&self, v: &Mixed) -> Result<Mixed, SystemException> {
        Ok(*v)
    }

    fn echo_longs(&self, v: &[i32]) -> Result<Longs, SystemException> {
        Ok(v.to_vec())
    }

    fn echo_structs(&self, v: &[Mixed]) -> Result<Mixeds, SystemException> {
        Ok(v.to_vec())
    }

    fn echo_octets(&self, v: &[u8]) -> Result<Octets, SystemException> {
        Ok(Octets::from(v.to_vec()))
    }

    fn echo_string(&self, v: &str) -> Result<String, SystemException> {
        Ok(v.to_owned())
    }

    fn take_octet(&self, _: u8) -> Result<(), SystemException> {
        Ok(())
    }
}

impl CountedTarget for Echo {
    fn counted(&self) -> Result<Tally, SystemException> {
        let now = counters::snapshot();
        Ok(Tally {
            system_calls: now.syscalls,
            locks: now.locks,
            lane_locks: now.lane_locks,
            orb_locks: now.orb_locks,
            futex_calls: now.futex,
            handoffs: now.handoffs,
            allocations: now.allocations,
            allocated_octets: now.allocated_bytes,
        })
    }
}
