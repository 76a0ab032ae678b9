//! The memory of values that consist of numbers only, as octets.

use std::cell::Cell;
use std::marker::PhantomData;
use std::{ptr, slice};

/// The parts of a value, as [`plain_octets_mut`] collects them.
#[derive(Debug)]
pub struct ValueParts<'v> {
    /// Address behind the last part.
    end: usize,
    is_gapless: bool,
    /// Makes the type invariant in `'v`, so that each part is borrowed for the whole of `'v`.
    value: PhantomData<Cell<&'v mut [u8]>>,
}

impl<'v> ValueParts<'v> {
    /// Adds the memory of the next part, in which every octet may have any value.
    #[inline]
    pub fn add(&mut self, octets: &'v mut [u8]) {
        self.is_gapless &= octets.as_ptr().addr() == self.end;
        self.end = self.end.wrapping_add(octets.len());
    }
}

/// Returns the memory of the values as octets, which may be changed at will. `parts` adds the parts of
/// one value in the order of their addresses. Returns `None` if the parts of a value are not its whole
/// memory, or are in another order.
///
/// # Examples
/// ```
/// use corelane_sys::plain::plain_octets_mut;
///
/// let mut pairs = [([1u8, 2], 3u8), ([4, 5], 6)];
/// let octets = plain_octets_mut(&mut pairs, |(first, second), parts| {
///     parts.add(first);
///     parts.add(std::slice::from_mut(second));
/// });
/// octets.unwrap()[3] = 7;
/// assert_eq!(pairs[1], ([7, 5], 6));
/// assert!(plain_octets_mut(&mut pairs, |(first, _), parts| parts.add(first)).is_none());
/// ```
#[inline]
pub fn plain_octets_mut<T>(
    values: &mut [T],
    mut parts: impl for<'v> FnMut(&'v mut T, &mut ValueParts<'v>),
) -> Option<&mut [u8]> {
    let are_plain = values.iter_mut().all(|value| {
        let start = ptr::from_mut(value).addr();
        let mut added = ValueParts { end: start, is_gapless: true, value: PhantomData };
        parts(value, &mut added);
        added.is_gapless && added.end == start + size_of::<T>()
    });
    // SAFETY: the octets are the memory of `values`, which stays borrowed as long as they. Each part
    // is a `&mut [u8]` that is valid for the whole borrow of its value, so no part overlaps another
    // part or memory outside the value. The parts follow each other from the first address of the
    // value to its last. So every octet of the value is initialised, and safe code may write any
    // octet to it.
    are_plain.then(|| unsafe { slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Mixed {
        first: [u8; 2],
        second: u8,
        flag: bool,
    }

    fn mixed() -> [Mixed; 2] {
        [Mixed { first: [1, 2], second: 3, flag: true }, Mixed { first: [4, 5], second: 6, flag: false }]
    }

    #[test]
    fn parts_in_another_order_or_with_a_gap_are_refused() {
        let mut values = mixed().map(|value| (value.first, value.second));
        // The compiler chooses the order of a tuple's members, so exactly one order is right.
        let in_order = [
            plain_octets_mut(&mut values, |(first, second), parts| {
                parts.add(first);
                parts.add(slice::from_mut(second));
            })
            .is_some(),
            plain_octets_mut(&mut values, |(first, second), parts| {
                parts.add(slice::from_mut(second));
                parts.add(first);
            })
            .is_some(),
        ];
        assert_ne!(in_order[0], in_order[1]);
        let mut values = mixed();
        assert!(values[0].flag && !values[1].flag);
        assert!(plain_octets_mut(&mut values, |value, parts| parts.add(&mut value.first)).is_none());
        let without_the_flag = plain_octets_mut(&mut values, |value, parts| {
            parts.add(&mut value.first);
            parts.add(slice::from_mut(&mut value.second));
        });
        assert!(without_the_flag.is_none());
    }

    #[test]
    fn memory_outside_the_value_is_no_part() {
        let mut values = [1u8, 2, 3];
        let mut other = [0u8; 3];
        assert!(plain_octets_mut(&mut values, |_, parts| parts.add(Box::leak(Box::new([0u8])))).is_none());
        let mut calls = 0;
        let refused = plain_octets_mut(&mut values, |value, parts| {
            calls += 1;
            if calls < 3 {
                parts.add(slice::from_mut(value));
            }
        });
        assert!(refused.is_none(), "the last value has no parts");
        plain_octets_mut(&mut values, |value, parts| parts.add(slice::from_mut(value)))
            .unwrap()
            .copy_from_slice(&[7; 3]);
        other.copy_from_slice(&values);
        assert_eq!(other, [7; 3]);
        assert_eq!(plain_octets_mut::<u8>(&mut [], |_, _| {}).map(|octets| octets.len()), Some(0));
    }
}
