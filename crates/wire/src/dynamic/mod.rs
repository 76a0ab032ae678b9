//! Values whose types are known only at run time.
//!
//! [`AnyValue`] is an `any`: a TypeCode and the octets of a value. The octets are stored as
//! received, so that a value passes through processes that do not know its type. For another byte
//! order, alignment or code set, the value is converted part by part with the help of its TypeCode.
//! [`Value`] is a value as a tree.

mod any;
mod instance;
mod transfer;
mod value;

pub use any::AnyValue;
pub use value::{UnionValue, Value, ValueInstance};

pub(crate) use transfer::transfer;

use crate::cdr::{CdrError, Decoder};
use crate::typecode::{TypeCodeKind, View};
use std::collections::HashMap;

/// Reads the count of a sequence. A structure or an array may have 0 bytes, so the count of such
/// elements is not compared with the unread bytes; the caller limits their number.
pub(crate) fn read_count(element: View<'_>, d: &mut Decoder<'_>) -> Result<usize, CdrError> {
    if !matches!(element.unaliased().kind(), TypeCodeKind::Struct | TypeCodeKind::Array) {
        return d.read_len(1);
    }
    let count = d.read_u32()?;
    if count > d.limits().max_sequence_length { Err(CdrError::LimitExceeded) } else { Ok(count as usize) }
}

#[derive(Default)]
pub(crate) struct ArmTable(HashMap<usize, HashMap<i128, usize>>);

const FEW_ARMS: usize = 8;

impl ArmTable {
    pub(crate) fn select(&mut self, union: View<'_>, label: i128) -> Option<usize> {
        let default = usize::try_from(union.default()).ok();
        let labels = || (0..).zip(union.members()).filter(|(index, _)| default != Some(*index));
        let found = if union.member_count() <= FEW_ARMS {
            labels().find(|(_, arm)| arm.label == label).map(|(index, _)| index)
        } else {
            let table = self.0.entry(union.key()).or_insert_with(|| {
                let mut table = HashMap::with_capacity(union.member_count());
                labels().for_each(|(index, arm)| {
                    table.entry(arm.label).or_insert(index);
                });
                table
            });
            table.get(&label).copied()
        };
        found.or(default)
    }
}
