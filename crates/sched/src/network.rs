//! Mapping of CORBA priorities to the differentiated services code point of IP packets (RFC 2474).

use std::fmt;

use crate::priority::Priority;

/// A mapping of priorities to the code points of packets. `None` leaves the socket unchanged.
pub trait NetworkPriorityMapping: Send + Sync + fmt::Debug + 'static {
    /// Returns the code point for `priority`.
    fn to_dscp(&self, priority: Priority) -> Option<u8>;
}

/// A table of code points. A code point applies to the priorities from its lowest priority to just
/// below the lowest priority of the next code point. A priority below all of these lowest
/// priorities has no code point.
///
/// # Examples
/// ```
/// use corelane_sched::{DscpTable, NetworkPriorityMapping, Priority};
/// let table = DscpTable::new([(0, 0), (16384, 26), (30000, 46)]).unwrap();
/// assert_eq!(table.to_dscp(Priority::new(20000).unwrap()), Some(26));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DscpTable(Vec<(Priority, u8)>);

impl DscpTable {
    /// Creates a table from pairs of a lowest priority and its code point, in any order. `None` for
    /// a negative priority, a code point above 63, or two code points for one priority.
    pub fn new(steps: impl IntoIterator<Item = (i16, u8)>) -> Option<Self> {
        let steps = steps.into_iter().map(|(from, dscp)| Some((Priority::new(from)?, dscp)).filter(|_| dscp < 64));
        let mut steps: Vec<_> = steps.collect::<Option<_>>()?;
        steps.sort_unstable_by_key(|(from, _)| *from);
        let unique = steps.windows(2).all(|pair| pair[0].0 < pair[1].0);
        unique.then_some(DscpTable(steps))
    }
}

impl NetworkPriorityMapping for DscpTable {
    fn to_dscp(&self, priority: Priority) -> Option<u8> {
        self.0.iter().rev().find(|(from, _)| *from <= priority).map(|(_, dscp)| *dscp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_hold_up_to_the_next() {
        let table = DscpTable::new([(200, 46), (100, 10)]).unwrap();
        let dscp = |number| table.to_dscp(Priority::new(number).unwrap());
        assert_eq!(
            [dscp(99), dscp(100), dscp(199), dscp(200), dscp(32767)],
            [None, Some(10), Some(10), Some(46), Some(46)]
        );
    }

    #[test]
    fn invalid_tables_are_refused() {
        for wrong in [vec![(0, 64)], vec![(-1, 0)], vec![(5, 1), (5, 2)]] {
            assert_eq!(DscpTable::new(wrong), None);
        }
    }
}
