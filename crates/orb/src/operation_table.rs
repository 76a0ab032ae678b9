//! The look-up of an interface's operations by name, with a *minimal perfect hash* that the IDL
//! compiler finds.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use crate::exception::SystemException;
use crate::rt::OverrunMonitor;
use crate::servant::ServerCall;

/// The operation names of an interface, in the order of their slots in a minimal perfect hash.
#[derive(Debug)]
pub struct OperationTable {
    seed: u64,
    longest: usize,
    displacements: &'static [u16],
    names: &'static [&'static str],
    /// Maximum processor time of each operation in microseconds, 0 if not declared; empty if no
    /// operation declares a time.
    worst_cases: &'static [u32],
}

impl OperationTable {
    /// Makes a table from the parameters that the IDL compiler found: the seed of the hash, one
    /// displacement for each bucket, and the names in the order of their slots. The number of
    /// buckets is a power of two.
    ///
    /// # Panics
    ///
    /// At compile time (the table is a `static`) if the number of displacements is not a power of
    /// two.
    #[must_use]
    pub const fn new(seed: u64, displacements: &'static [u16], names: &'static [&'static str]) -> Self {
        assert!(displacements.len().is_power_of_two());
        let mut longest = 0;
        let mut at = 0;
        while at < names.len() {
            if names[at].len() > longest {
                longest = names[at].len();
            }
            at += 1;
        }
        Self { seed, longest, displacements, names, worst_cases: &[] }
    }

    /// Makes a table with the `@wcet` of each operation: microseconds of processor time, 0 if not
    /// declared.
    ///
    /// # Panics
    ///
    /// At compile time as [`new`](Self::new) does, and if the numbers of times and names differ.
    #[must_use]
    pub const fn with_wcet(
        seed: u64,
        displacements: &'static [u16],
        names: &'static [&'static str],
        worst_cases: &'static [u32],
    ) -> Self {
        assert!(names.len() == worst_cases.len());
        Self { worst_cases, ..Self::new(seed, displacements, names) }
    }

    /// Runs an operation, and reports it if it uses more processor time than it declares.
    /// Operations without a declared time are not measured.
    ///
    /// # Errors
    /// The errors of `run`; TIMEOUT with [`OVERRUN`](crate::minor::OVERRUN) if the operation used
    /// too much time and the ORB is configured to drop the results of such operations.
    #[inline]
    pub fn run_measured<'m>(
        &self,
        operation: Option<usize>,
        call: &mut ServerCall<'m>,
        run: impl FnOnce(&mut ServerCall<'m>) -> Result<(), SystemException>,
    ) -> Result<(), SystemException> {
        let declared = operation.and_then(|operation| self.worst_cases.get(operation)).copied().unwrap_or(0);
        if declared == 0 {
            return run(call);
        }
        let name = operation.and_then(|operation| self.names.get(operation)).copied().unwrap_or_default();
        let watch = OverrunMonitor::begin(call, name, Duration::from_micros(declared.into()));
        match catch_unwind(AssertUnwindSafe(|| run(call))) {
            Ok(result) => watch.end(call, result),
            Err(panic) => {
                watch.end_by_panic(call);
                resume_unwind(panic)
            }
        }
    }

    /// Returns the index of the operation called `name`, which has no NUL at its end, or `None` if
    /// there is no such operation.
    #[must_use]
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        if name.len() > self.longest {
            return None;
        }
        let slot = slot(hash(self.seed, name), self.displacements, self.names.len());
        let candidate = self.names.get(slot)?;
        let found = (candidate.as_bytes() == name).then_some(slot);
        corelane_sys::probe!("operation found");
        found
    }

    /// Returns the names, in the order of the indices that [`find`](Self::find) returns.
    #[must_use]
    pub const fn names(&self) -> &'static [&'static str] {
        self.names
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the hash of a name, which is read in words of eight bytes. The last word may contain
/// bytes of the word before it.
#[inline]
fn hash(seed: u64, name: &[u8]) -> u64 {
    let mut state = seed ^ (name.len() as u64).wrapping_mul(MULTIPLIER);
    let mut rest = name;
    while let Some((word, tail)) = rest.split_first_chunk::<8>() {
        state = fold(state ^ u64::from_le_bytes(*word));
        rest = tail;
    }
    let last = if let Some(word) = name.last_chunk::<8>() {
        u64::from_le_bytes(*word)
    } else if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last))
    } else if let (Some(first), Some(last)) = (name.first(), name.last()) {
        let middle = name[name.len() / 2];
        u64::from(*first) << 16 | u64::from(middle) << 8 | u64::from(*last)
    } else {
        0
    };
    fold(state ^ last)
}

#[inline]
fn fold(state: u64) -> u64 {
    let product = u128::from(state ^ MULTIPLIER) * u128::from(MULTIPLIER);
    (product >> 64) as u64 ^ product as u64
}

/// Returns the slot of a name with this hash, in a table of `count` names. `displacements.len()` is
/// a power of two.
#[inline]
fn slot(hash: u64, displacements: &[u16], count: usize) -> usize {
    let (high, low) = ((hash >> 32) as u32, hash as u32);
    let bucket = high as usize & (displacements.len() - 1);
    let displaced = low.wrapping_add(u32::from(displacements[bucket]).wrapping_mul(high | 1));
    ((u64::from(displaced) * count as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::{OperationTable, hash, slot};

    /// The IDL compiler has a copy of the hash function. If the copies differed, a server would
    /// find no operation.
    #[test]
    fn hash_matches_the_idl_compiler() {
        assert_eq!(hash(0, b""), 0xbe8c_ab64_4efd_da51);
        assert_eq!(hash(1, b"f"), 0x42ba_9a07_54f9_0317);
        assert_eq!(hash(2, b"ping"), 0x161a_e923_583d_0c52);
        assert_eq!(hash(3, b"_get_level"), 0xcfde_253f_40bb_bd0b);
        assert_eq!(hash(4, b"resolve_initial_references"), 0x348b_2d28_1db8_5919);
    }

    #[test]
    fn table_finds_every_operation_and_no_other_name() {
        let names = ["echo", "cube_octet", "_get_level", "x"];
        let (seed, order) = (0..)
            .find_map(|seed| {
                let mut order = [""; 4];
                for name in names {
                    order[slot(hash(seed, name.as_bytes()), &[0], 4)] = name;
                }
                order.iter().all(|name| !name.is_empty()).then_some((seed, order))
            })
            .unwrap_or_default();
        let table = OperationTable::new(seed, &[0], Vec::from(order).leak());
        for name in names {
            let found = table.find(name.as_bytes());
            assert_eq!(found.map(|index| table.names()[index]), Some(name));
        }
        for name in ["", "ech", "echo2", "Echo", "cube_octets", "y", "_set_level", "_get_leveL"] {
            assert_eq!(table.find(name.as_bytes()), None, "{name}");
        }
        assert_eq!(table.find(&vec![b'x'; 1 << 20]), None);
    }

    #[test]
    fn interface_may_have_no_operations() {
        let table = OperationTable::new(0, &[0], &[]);
        assert_eq!(table.find(b""), None);
        assert_eq!(table.find(b"f"), None);
    }
}
