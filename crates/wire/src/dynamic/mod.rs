//! Values whose types are known only at run time.
//!
//! [`AnyValue`] is an `any`: a TypeCode and the octets of a value. What it came as is kept as it came, so a value passes
//! through processes that do not know its type; where it goes on with another byte order, alignment or code set, it is
//! converted part by part, which its TypeCode makes possible. [`Value`] is a value as a tree.
//!
//! Work is bounded by what a message holds: a step without octets is possible (an empty structure, a TypeCode that shares its
//! parts), and such steps are counted. Whether a value is refused for them goes by its parts alone, not by its form: what
//! was read can be read again after it was written anew.

mod any;
mod instance;
mod transfer;
mod value;

pub use any::AnyValue;
pub use value::{Instance, UnionValue, Value};

pub(crate) use transfer::transfer;

use crate::cdr::{CdrError, Decoder};
use crate::typecode::{Kind, View};
use std::collections::HashMap;

/// Reads the count of a sequence. Only a structure or an array can have no octets: then those that are left say nothing of how many
/// elements there are, and who reads counts them one by one.
pub(crate) fn read_count(element: View<'_>, d: &mut Decoder<'_>) -> Result<usize, CdrError> {
    if !matches!(element.resolved().kind(), Kind::Struct | Kind::Array) {
        return d.read_len(1);
    }
    let count = d.read_u32()?;
    if count > d.limits().sequence_length { Err(CdrError::OverLimit) } else { Ok(count as usize) }
}

/// Finds arms of unions by their labels.
#[derive(Default)]
pub(crate) struct Arms(HashMap<usize, HashMap<i128, usize>>);

/// Unions with more labels than this are looked up in a table.
const FEW_ARMS: usize = 8;

impl Arms {
    /// The index of the arm that a discriminator chooses.
    pub(crate) fn choose(&mut self, union: View<'_>, label: i128) -> Option<usize> {
        let default = usize::try_from(union.default()).ok();
        let labels = || (0..).zip(union.members()).filter(|(index, _)| default != Some(*index));
        let found = if union.member_count() <= FEW_ARMS {
            labels().find(|(_, arm)| arm.label == label).map(|(index, _)| index)
        } else {
            let table = self.0.entry(union.key()).or_insert_with(|| {
                // Of two arms with one label the first counts.
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
